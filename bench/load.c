/*
 * load: produce to or consume from a topic, and print one line of JSON.
 *
 *   load produce BOOTSTRAP TOPIC MESSAGES SIZE [key=value ...]
 *   load consume BOOTSTRAP TOPIC MESSAGES PARTITIONS [key=value ...]
 *   load latency BOOTSTRAP TOPIC MESSAGES RATE [key=value ...]
 *   load steady BOOTSTRAP TOPIC MESSAGES RATE [key=value ...]
 *   load transactions BOOTSTRAP TOPIC MESSAGES ABORTED [key=value ...]
 *   load commits BOOTSTRAP TOPIC TRANSACTIONS SIZE [key=value ...]
 *
 * Load comes from C because a Python client tops out long before the broker does. Producing goes as fast as
 * librdkafka can and measures from the first message to the last delivery report. Consuming reads all partitions
 * from their beginning with the simple consumer, which needs no group, and measures from the first message to
 * the last, so that connecting and the first metadata answer are left out. Both print the processor time that the
 * client took, to see which side is the limit.
 *
 * Latency sends RATE messages of 100 bytes a second, each with the time of its sending, to a new topic of four
 * partitions, and reads them back with a second client in the same process. It prints percentiles in milliseconds
 * of the way from producer to consumer, and the producer's own statistics, which have the round trip of the requests
 * alone: the rest is the client library's (lingering, queues, threads). WARM_UP_S come before what counts: the
 * first Fetch of a new consumer has the partitions that it knows by then, and the others wait until it returns.
 *
 * Steady sends RATE messages a second until its standard input ends, MESSAGES at most, and prints when each was
 * acknowledged, in seconds of the monotonic clock, one line each as it happens. The last line is the usual one; it comes
 * when all that was sent is acknowledged. Whatever happens to brokers meanwhile, a message that fails ends the run.
 *
 * Transactions produces messages of 1 KB in transactions of TRANSACTION_S, until MESSAGES are committed. Every ABORTED-th
 * transaction is aborted, none if it is 0. Commits runs transactions of one message, one after the other, and prints
 * percentiles in milliseconds of their duration, from the message to the end of the commit.
 */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "rdkafka.h"

#define CONSUME_BATCH 10000
#define STALLED_MS 30000
/* What is compressed must not repeat itself within a batch. */
#define VARIED_BYTES (4 << 20)
#define LATENCY_SIZE 100
#define LATENCY_PARTITIONS 4
#define WARM_UP_S 2
#define TRANSACTION_S 0.1
#define TRANSACTION_SIZE 1024

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

static int is_security(const char *setting) {
        return !strncmp(setting, "security.", 9) || !strncmp(setting, "ssl.", 4) || !strncmp(setting, "sasl.", 5);
}

/* With only_security, settings of TLS and SASL are taken, and the others are left out. */
static rd_kafka_conf_t *configuration(const char *bootstrap, char **settings, int count, int only_security) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        set(conf, "bootstrap.servers", bootstrap);
        for (int i = 0; i < count; i++) {
                char *value = strchr(settings[i], '=');
                if (!value)
                        die(settings[i], "expected key=value");
                if (only_security && !is_security(settings[i]))
                        continue;
                *value = '\0';
                set(conf, settings[i], value + 1);
                *value = '=';
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

static double cpu_s(void) {
        struct rusage used;
        getrusage(RUSAGE_SELF, &used);
        return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void report(int64_t messages, int64_t bytes, double began, double seconds, double cpu) {
        printf("{\"messages\": %" PRId64 ", \"bytes\": %" PRId64
               ", \"began\": %.6f, \"seconds\": %.6f, \"client_cpu\": %.6f}\n",
               messages, bytes, began, seconds, cpu);
}

/* Bytes that compress to about half, as text does; without compression one message's worth, again and again. */
static char *payloads(size_t size, size_t room) {
        char *bytes   = malloc(size + room);
        uint32_t state = 1;
        for (size_t i = 0; i < size + room; i++) {
                state    = state * 1664525u + 1013904223u;
                bytes[i] = (char)('a' + (state >> 28));
        }
        return bytes;
}

static int compresses(rd_kafka_conf_t *conf) {
        char codec[32];
        size_t size = sizeof(codec);
        return rd_kafka_conf_get(conf, "compression.codec", codec, &size) == RD_KAFKA_CONF_OK && strcmp(codec, "none");
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
        rd_kafka_conf_t *conf    = configuration(bootstrap, settings, count, 0);
        size_t room              = compresses(conf) ? VARIED_BYTES : 0;
        rd_kafka_conf_set_opaque(conf, &delivery);
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
        rd_kafka_t *rk        = client(RD_KAFKA_PRODUCER, conf);
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, topic, NULL);
        char *payload         = payloads(size, room);

        const struct rd_kafka_metadata *metadata;
        if (rd_kafka_metadata(rk, 0, rkt, &metadata, STALLED_MS))
                die("metadata", "no answer");
        rd_kafka_metadata_destroy(metadata);

        double began = now_s(), cpu = cpu_s();
        for (int64_t sent = 0; sent < messages;) {
                /* Neither copied nor freed: the bytes outlive every message. */
                char *value = payload + (room ? (size_t)sent * size % room : 0);
                if (rd_kafka_produce(rkt, RD_KAFKA_PARTITION_UA, 0, value, size, NULL, 0, NULL) == 0) {
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
        report(messages, messages * (int64_t)size, began, seconds, cpu_s() - cpu);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        free(payload);
}

static void end(rd_kafka_error_t *error, const char *what) {
        if (error)
                die(what, rd_kafka_error_string(error));
}

static void put(rd_kafka_t *rk, rd_kafka_topic_t *rkt, char *value, size_t size) {
        while (rd_kafka_produce(rkt, RD_KAFKA_PARTITION_UA, 0, value, size, NULL, 0, NULL)) {
                if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
                        die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                rd_kafka_poll(rk, 5);
        }
}

static rd_kafka_t *transactional(const char *bootstrap, char **settings, int count, struct delivery *delivery) {
        rd_kafka_conf_t *conf = configuration(bootstrap, settings, count, 0);
        rd_kafka_conf_set_opaque(conf, delivery);
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
        rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, conf);
        end(rd_kafka_init_transactions(rk, STALLED_MS), "init");
        return rk;
}

static void transactions(const char *bootstrap, const char *topic, int64_t messages, int64_t aborted, char **settings,
                         int count) {
        struct delivery delivery = {0, 0, NULL};
        rd_kafka_t *rk           = transactional(bootstrap, settings, count, &delivery);
        rd_kafka_topic_t *rkt    = rd_kafka_topic_new(rk, topic, NULL);
        char *payload            = payloads(TRANSACTION_SIZE, 0);
        int64_t committed = 0, number = 0;

        double began = now_s(), cpu = cpu_s();
        while (committed < messages) {
                int64_t sent = 0;
                double until = now_s() + TRANSACTION_S;
                end(rd_kafka_begin_transaction(rk), "begin");
                while (now_s() < until && committed + sent < messages) {
                        for (int i = 0; i < 100 && committed + sent < messages; i++, sent++)
                                put(rk, rkt, payload, TRANSACTION_SIZE);
                        rd_kafka_poll(rk, 0);
                }
                if (aborted && ++number % aborted == 0) {
                        /* An abort drops what is still in the queue. */
                        rd_kafka_flush(rk, STALLED_MS);
                        end(rd_kafka_abort_transaction(rk, STALLED_MS), "abort");
                } else {
                        end(rd_kafka_commit_transaction(rk, STALLED_MS), "commit");
                        committed += sent;
                }
        }
        double seconds = now_s() - began;
        if (delivery.failed)
                die("delivery", delivery.why);
        report(committed, committed * TRANSACTION_SIZE, began, seconds, cpu_s() - cpu);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        free(payload);
}

static int ascending(const void *a, const void *b) {
        double left = *(const double *)a, right = *(const double *)b;
        return (left > right) - (left < right);
}

static void commits(const char *bootstrap, const char *topic, int64_t total, size_t size, char **settings, int count) {
        struct delivery delivery = {0, 0, NULL};
        rd_kafka_t *rk           = transactional(bootstrap, settings, count, &delivery);
        rd_kafka_topic_t *rkt    = rd_kafka_topic_new(rk, topic, NULL);
        char *payload            = payloads(size, 0);
        double *took             = malloc((size_t)total * sizeof(double));

        double began = now_s(), cpu = cpu_s();
        for (int64_t i = 0; i < total; i++) {
                double at = now_s();
                end(rd_kafka_begin_transaction(rk), "begin");
                put(rk, rkt, payload, size);
                end(rd_kafka_commit_transaction(rk, STALLED_MS), "commit");
                took[i] = (now_s() - at) * 1e3;
        }
        double seconds = now_s() - began;
        qsort(took, (size_t)total, sizeof(double), ascending);
        printf("{\"transactions\": %" PRId64 ", \"seconds\": %.6f, \"client_cpu\": %.6f, \"p50\": %.4f, \"p99\": %.4f}\n",
               total, seconds, cpu_s() - cpu, took[total / 2], took[total * 99 / 100]);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        free(payload);
        free(took);
}

static void consume(const char *bootstrap, const char *topic, int64_t messages, int partitions, char **settings,
                    int count) {
        static rd_kafka_message_t *batch[CONSUME_BATCH];
        rd_kafka_t *rk            = client(RD_KAFKA_CONSUMER, configuration(bootstrap, settings, count, 0));
        rd_kafka_topic_t *rkt     = rd_kafka_topic_new(rk, topic, NULL);
        rd_kafka_queue_t *queue   = rd_kafka_queue_new(rk);
        int64_t seen = 0, bytes = 0;
        double began = 0, cpu = 0;

        for (int partition = 0; partition < partitions; partition++)
                if (rd_kafka_consume_start_queue(rkt, partition, RD_KAFKA_OFFSET_BEGINNING, queue))
                        die("consume", rd_kafka_err2str(rd_kafka_last_error()));
        while (seen < messages) {
                ssize_t got = rd_kafka_consume_batch_queue(queue, STALLED_MS, batch, CONSUME_BATCH);
                if (got <= 0)
                        die("consume", "stalled");
                if (!seen) {
                        began = now_s();
                        cpu   = cpu_s();
                }
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
        report(seen, bytes, began, now_s() - began, cpu_s() - cpu);
        for (int partition = 0; partition < partitions; partition++)
                rd_kafka_consume_stop(rkt, partition);
        rd_kafka_queue_destroy(queue);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
}

struct latency {
        rd_kafka_queue_t *arrivals;
        int64_t messages;
        int64_t warm_up;
        int64_t acknowledged;
        double *end_to_end;
        char *statistics;
};

static int64_t now_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void on_acknowledged(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
        struct latency *latency = opaque;
        (void)rk;
        if (message->err)
                die("delivery", rd_kafka_err2str(message->err));
        latency->acknowledged++;
}

/* Statistics cover the time since the last ones; the interval is chosen to end just before the last message. */
static int on_statistics(rd_kafka_t *rk, char *json, size_t size, void *opaque) {
        struct latency *latency = opaque;
        (void)rk;
        if (!latency->statistics)
                latency->statistics = strndup(json, size);
        return 0;
}

static void *arrivals(void *opaque) {
        struct latency *latency = opaque;
        for (int64_t seen = 0; seen < latency->messages;) {
                rd_kafka_message_t *message = rd_kafka_consume_queue(latency->arrivals, STALLED_MS);
                int64_t sent_ns, arrived_ns = now_ns();
                if (!message)
                        die("consume", "stalled");
                if (message->err && message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
                        die("consume", rd_kafka_message_errstr(message));
                if (!message->err) {
                        memcpy(&sent_ns, message->payload, sizeof(sent_ns));
                        latency->end_to_end[seen++] = (double)(arrived_ns - sent_ns) / 1e6;
                }
                rd_kafka_message_destroy(message);
        }
        return NULL;
}

static void percentiles(const char *name, double *values, int64_t count) {
        qsort(values, (size_t)count, sizeof(*values), ascending);
        printf("\"%s\": {\"p50\": %.4f, \"p99\": %.4f, \"p99_9\": %.4f}", name, values[count / 2],
               values[count * 99 / 100], values[count * 999 / 1000]);
}

/* The moment of the message number `sent`, whatever became of those before it. */
static void wait_for_turn(int64_t began, int64_t sent, int64_t rate) {
        int64_t due           = began + sent * 1000000000 / rate;
        struct timespec until = {due / 1000000000, due % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void send_at_rate(rd_kafka_t *rk, rd_kafka_topic_t *rkt, struct latency *latency, int64_t rate) {
        char payload[LATENCY_SIZE] = {0};
        int64_t began              = now_ns();
        for (int64_t sent = 0; sent < latency->messages; sent++) {
                wait_for_turn(began, sent, rate);
                int64_t sent_ns = now_ns();
                memcpy(payload, &sent_ns, sizeof(sent_ns));
                if (rd_kafka_produce(rkt, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, payload, sizeof(payload), NULL, 0,
                                     NULL))
                        die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                rd_kafka_poll(rk, 0);
        }
        while (latency->acknowledged < latency->messages || !latency->statistics)
                rd_kafka_poll(rk, 5);
}

static void latency(const char *bootstrap, const char *topic, int64_t messages, int64_t rate, char **settings,
                    int count) {
        char *writing       = strdup(bootstrap);
        char *reading       = strchr(writing, '/');
        if (reading)
                *reading++ = 0;
        struct latency latency = {.messages = messages + WARM_UP_S * rate, .warm_up = WARM_UP_S * rate};
        latency.end_to_end     = calloc((size_t)latency.messages, sizeof(double));
        char interval[32];
        snprintf(interval, sizeof(interval), "%" PRId64, latency.messages * 1000 / rate * 95 / 100 + 1);

        rd_kafka_t *reader         = client(RD_KAFKA_CONSUMER, configuration(reading ? reading : writing, settings, count, 1));
        rd_kafka_topic_t *readable = rd_kafka_topic_new(reader, topic, NULL);
        latency.arrivals           = rd_kafka_queue_new(reader);
        for (int partition = 0; partition < LATENCY_PARTITIONS; partition++)
                rd_kafka_consume_start_queue(readable, partition, RD_KAFKA_OFFSET_BEGINNING, latency.arrivals);
        pthread_t thread;
        pthread_create(&thread, NULL, arrivals, &latency);

        rd_kafka_conf_t *conf = configuration(writing, settings, count, 0);
        set(conf, "statistics.interval.ms", interval);
        rd_kafka_conf_set_opaque(conf, &latency);
        rd_kafka_conf_set_dr_msg_cb(conf, on_acknowledged);
        rd_kafka_conf_set_stats_cb(conf, on_statistics);
        rd_kafka_t *writer         = client(RD_KAFKA_PRODUCER, conf);
        rd_kafka_topic_t *writable = rd_kafka_topic_new(writer, topic, NULL);
        double cpu = cpu_s(), began = now_s();
        send_at_rate(writer, writable, &latency, rate);
        pthread_join(thread, NULL);

        printf("{\"seconds\": %.6f, \"client_cpu\": %.6f, ", now_s() - began, cpu_s() - cpu);
        percentiles("end_to_end", latency.end_to_end + latency.warm_up, messages);
        printf(", \"statistics\": %s}\n", latency.statistics);
        for (int partition = 0; partition < LATENCY_PARTITIONS; partition++)
                rd_kafka_consume_stop(readable, partition);
        rd_kafka_queue_destroy(latency.arrivals);
        rd_kafka_topic_destroy(readable);
        rd_kafka_topic_destroy(writable);
        rd_kafka_destroy(reader);
        rd_kafka_destroy(writer);
        free(latency.statistics);
        free(latency.end_to_end);
        free(writing);
}

static void on_delivery_report(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
        int64_t *acknowledged = opaque;
        (void)rk;
        if (message->err)
                die("delivery", rd_kafka_err2str(message->err));
        (*acknowledged)++;
        printf("%.6f\n", now_s());
}

static int input_ended(void) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        return poll(&input, 1, 0) > 0;
}

static void steady(const char *bootstrap, const char *topic, int64_t messages, int64_t rate, char **settings,
                   int count) {
        char payload[LATENCY_SIZE] = {0};
        int64_t acknowledged = 0, sent = 0;
        rd_kafka_conf_t *conf = configuration(bootstrap, settings, count, 0);
        rd_kafka_conf_set_opaque(conf, &acknowledged);
        rd_kafka_conf_set_dr_msg_cb(conf, on_delivery_report);
        rd_kafka_t *rk        = client(RD_KAFKA_PRODUCER, conf);
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, topic, NULL);
        setvbuf(stdout, NULL, _IOLBF, 0);

        double cpu = cpu_s(), began = now_s();
        for (int64_t began_ns = now_ns(); sent < messages && !input_ended(); sent++) {
                wait_for_turn(began_ns, sent, rate);
                if (rd_kafka_produce(rkt, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, payload, sizeof(payload), NULL, 0,
                                     NULL))
                        die("produce", rd_kafka_err2str(rd_kafka_last_error()));
                rd_kafka_poll(rk, 0);
        }
        while (acknowledged < sent)
                rd_kafka_poll(rk, 5);
        report(sent, sent * (int64_t)sizeof(payload), began, now_s() - began, cpu_s() - cpu);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
}

int main(int argc, char **argv) {
        if (argc < 6) {
                fprintf(stderr, "usage: load produce|consume|latency|steady|transactions|commits BOOTSTRAP TOPIC "
                                "MESSAGES SIZE|PARTITIONS|RATE|ABORTED [key=value ...]\n");
                return 2;
        }
        int64_t messages = strtoll(argv[4], NULL, 10);
        int64_t argument = strtoll(argv[5], NULL, 10);
        if (!strcmp(argv[1], "produce"))
                produce(argv[2], argv[3], messages, (size_t)argument, argv + 6, argc - 6);
        else if (!strcmp(argv[1], "consume"))
                consume(argv[2], argv[3], messages, (int)argument, argv + 6, argc - 6);
        else if (!strcmp(argv[1], "latency"))
                latency(argv[2], argv[3], messages, argument, argv + 6, argc - 6);
        else if (!strcmp(argv[1], "steady"))
                steady(argv[2], argv[3], messages, argument, argv + 6, argc - 6);
        else if (!strcmp(argv[1], "transactions"))
                transactions(argv[2], argv[3], messages, argument, argv + 6, argc - 6);
        else if (!strcmp(argv[1], "commits"))
                commits(argv[2], argv[3], messages, (size_t)argument, argv + 6, argc - 6);
        else
                die(argv[1], "unknown mode");
        return 0;
}
