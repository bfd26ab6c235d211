/*
 * load: produce to or consume from a topic as fast as librdkafka can, and print one line of JSON.
 *
 *   load produce BOOTSTRAP TOPIC MESSAGES SIZE [key=value ...]
 *   load consume BOOTSTRAP TOPIC MESSAGES PARTITIONS [key=value ...]
 *
 * Load comes from C because a Python client tops out long before the broker does. Producing measures from the
 * first message to the last delivery report. Consuming reads all partitions from their beginning with the simple
 * consumer, which needs no group, and measures from the first message to the last, so that connecting and the
 * first metadata answer are left out.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rdkafka.h"

#define CONSUME_BATCH 10000
#define STALLED_MS 30000

struct delivery {
        int64_t done;
        int64_t failed;
        const char *why;
};

static double now_s(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void die(const char *what, const char *why) {
        fprintf(stderr, "load: %s: %s\n", what, why);
        exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *key, const char *value) {
        char why[256];
        if (rd_kafka_conf_set(conf, key, value, why, sizeof(why)) != RD_KAFKA_CONF_OK)
                die(key, why);
}

static rd_kafka_conf_t *configuration(const char *bootstrap, char **settings, int count) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "bootstrap.servers", bootstrap);
        for (int i = 0; i < count; i++) {
                char *value = strchr(settings[i], '=');
                if (!value)
                        die(settings[i], "expected key=value");
                *value = '\0';
                set(conf, settings[i], value + 1);
        }
        return conf;
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
        char why[256];
        rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof(why));
        if (!rk)
                die("client", why);
        return rk;
}

static void report(int64_t messages, int64_t bytes, double seconds) {
        printf("{\"messages\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f}\n", messages, bytes, seconds);
}

static void on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
        struct delivery *delivery = opaque;
        (void)rk;
        delivery->done++;
        if (message->err) {
                delivery->failed++;
                delivery->why = rd_kafka_err2str(message->err);
        }
}

static void produce(const char *bootstrap, const char *topic, int64_t messages, size_t size, char **settings,
                    int count) {
        struct delivery delivery = {0, 0, NULL};
        rd_kafka_conf_t *conf    = configuration(bootstrap, settings, count);
        rd_kafka_conf_set_opaque(conf, &delivery);
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
        rd_kafka_t *rk         = client(RD_KAFKA_PRODUCER, conf);
        rd_kafka_topic_t *rkt  = rd_kafka_topic_new(rk, topic, NULL);
        char *payload          = malloc(size);
        memset(payload, 'x', size);

        const struct rd_kafka_metadata *metadata;
        if (rd_kafka_metadata(rk, 0, rkt, &metadata, STALLED_MS))
                die("metadata", "no answer");
        rd_kafka_metadata_destroy(metadata);

        double began = now_s();
        for (int64_t sent = 0; sent < messages;) {
                /* Neither copied nor freed: every message is the same bytes, which outlive them all. */
                if (rd_kafka_produce(rkt, RD_KAFKA_PARTITION_UA, 0, payload, size, NULL, 0, NULL) == 0) {
                        if (++sent % 1000 == 0)
                                rd_kafka_poll(rk, 0);
                } else if (rd_kafka_last_error() == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
                        rd_kafka_poll(rk, 5);
                } else {
                        die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                }
        }
        while (delivery.done < messages)
                rd_kafka_poll(rk, 5);
        double seconds = now_s() - began;
        if (delivery.failed)
                die("delivery", delivery.why);
        report(messages, messages * (int64_t)size, seconds);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        free(payload);
}

static void consume(const char *bootstrap, const char *topic, int64_t messages, int partitions, char **settings,
                    int count) {
        static rd_kafka_message_t *batch[CONSUME_BATCH];
        rd_kafka_t *rk            = client(RD_KAFKA_CONSUMER, configuration(bootstrap, settings, count));
        rd_kafka_topic_t *rkt     = rd_kafka_topic_new(rk, topic, NULL);
        rd_kafka_queue_t *queue   = rd_kafka_queue_new(rk);
        int64_t seen = 0, bytes = 0;
        double began = 0;

        for (int partition = 0; partition < partitions; partition++)
                if (rd_kafka_consume_start_queue(rkt, partition, RD_KAFKA_OFFSET_BEGINNING, queue))
                        die("consume", rd_kafka_err2str(rd_kafka_last_error()));
        while (seen < messages) {
                ssize_t got = rd_kafka_consume_batch_queue(queue, STALLED_MS, batch, CONSUME_BATCH);
                if (got <= 0)
                        die("consume", "stalled");
                if (!seen)
                        began = now_s();
                for (ssize_t i = 0; i < got; i++) {
                        if (batch[i]->err && batch[i]->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
                                die("consume", rd_kafka_message_errstr(batch[i]));
                        if (!batch[i]->err) {
                                seen++;
                                bytes += (int64_t)batch[i]->len;
                        }
                        rd_kafka_message_destroy(batch[i]);
                }
        }
        report(seen, bytes, now_s() - began);
        for (int partition = 0; partition < partitions; partition++)
                rd_kafka_consume_stop(rkt, partition);
        rd_kafka_queue_destroy(queue);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
}

int main(int argc, char **argv) {
        if (argc < 6) {
                fprintf(stderr, "usage: load produce|consume BOOTSTRAP TOPIC MESSAGES SIZE|PARTITIONS [key=value ...]\n");
                return 2;
        }
        int64_t messages = strtoll(argv[4], NULL, 10);
        if (!strcmp(argv[1], "produce"))
                produce(argv[2], argv[3], messages, strtoul(argv[5], NULL, 10), argv + 6, argc - 6);
        else if (!strcmp(argv[1], "consume"))
                consume(argv[2], argv[3], messages, atoi(argv[5]), argv + 6, argc - 6);
        else
                die(argv[1], "unknown mode");
        return 0;
}
