/*
 * echo: a broker that takes next to no time, to see what the client and the machine take without one.
 *
 *   echo PORT
 *
 * It listens on loopback and keeps one topic of four partitions in memory, whatever its name is: batches as they
 * came, but for their base offsets. It has one thread, no disk, and checks nothing. Requests that arrived together are
 * all taken in, then the reader that waits is answered, then they are. There is one such reader, and its Fetch waits
 * until there is something, however long that is.
 *
 * It answers the requests of `load latency`, in the oldest versions that carry today's batches. Anything else ends it.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PARTITIONS 4
#define CONNECTIONS 32
#define FRAME_BYTES (2 << 20)
#define LOG_BYTES (64 << 20)
#define ANSWER_BYTES (16 << 20)
/* The most bytes of a partition in a response: a reader that is far behind fetches again. */
#define FETCH_BYTES (2 << 20)
#define NAME_BYTES 256
/* In a batch: what follows its base offset and its length, and where both and the last offset's delta are. */
#define LENGTH_AT 8
#define LOG_OVERHEAD 12
#define DELTA_AT 23
#define UNSUPPORTED_VERSION 35
#define NODE 1

enum { PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, API_VERSIONS = 18 };

static const int16_t SERVED[][2] = {{PRODUCE, 3}, {FETCH, 4}, {LIST_OFFSETS, 1}, {METADATA, 1}, {API_VERSIONS, 0}};

struct partition {
        char batches[LOG_BYTES];
        size_t size;
        int64_t end_offset;
        /* A batch that starts here: where the reader is, as far as is known. */
        size_t read_at;
        int64_t read_offset;
};

struct connection {
        size_t filled;
        char frames[FRAME_BYTES];
};

struct answer {
        size_t size;
        char bytes[ANSWER_BYTES];
};

static struct partition partitions[PARTITIONS];
static struct pollfd polled[1 + CONNECTIONS];
static struct connection connections[1 + CONNECTIONS];
static int port;

/* The Fetch that waits, if there is one. */
static struct {
        int is_there;
        int fd;
        int32_t correlation;
        char topic[NAME_BYTES];
        int16_t topic_size;
        int32_t count;
        struct {
                int32_t partition;
                int64_t offset;
        } wanted[PARTITIONS];
} reader;

static void must(int holds, const char *what) {
        if (!holds) {
                fprintf(stderr, "echo: %s\n", what);
                exit(1);
        }
}

/* Numbers are signed, and their most significant byte comes first. */
static int64_t take(const char **at, int bytes) {
        int64_t value = (signed char)*(*at)++;
        while (--bytes)
                value = value * 256 + (unsigned char)*(*at)++;
        return value;
}

static int64_t number_at(const char *at, int bytes) { return take(&at, bytes); }

static void write_at(char *at, int64_t value, int bytes) {
        while (bytes--)
                *at++ = (char)((uint64_t)value >> (8 * bytes));
}

static void put(struct answer *out, int64_t value, int bytes) {
        write_at(out->bytes + out->size, value, bytes);
        out->size += (size_t)bytes;
}

static void put_bytes(struct answer *out, const char *bytes, size_t size) {
        must(out->size + size < ANSWER_BYTES - FRAME_BYTES, "an answer is too large");
        memcpy(out->bytes + out->size, bytes, size);
        out->size += size;
}

static const char *take_text(const char **at, int16_t *size) {
        *size            = (int16_t)take(at, 2);
        const char *text = *at;
        *at += *size > 0 ? *size : 0;
        return text;
}

/* Copy a name from a request to its answer. */
static void echo_name(struct answer *out, const char **at) {
        int16_t size;
        const char *name = take_text(at, &size);
        put(out, size, 2);
        put_bytes(out, name, (size_t)size);
}

static size_t begin(struct answer *out, int32_t correlation) {
        size_t start = out->size;
        out->size += 4;
        put(out, correlation, 4);
        return start;
}

static void end(struct answer *out, size_t start) {
        write_at(out->bytes + start, (int64_t)(out->size - start - 4), 4);
}

static void send_all(int fd, const struct answer *out) {
        for (size_t sent = 0; sent < out->size;) {
                ssize_t done = send(fd, out->bytes + sent, out->size - sent, MSG_NOSIGNAL);
                /* A closed connection needs no answer. */
                if (done < 0)
                        return;
                sent += (size_t)done;
        }
}

static int32_t checked(int32_t index) {
        must(index >= 0 && index < PARTITIONS, "a partition that is not there");
        return index;
}

static int64_t append(int32_t index, const char *batch, size_t size) {
        struct partition *partition = &partitions[checked(index)];
        int64_t base                = partition->end_offset;
        must(partition->size + size <= LOG_BYTES, "a log is full");
        memcpy(partition->batches + partition->size, batch, size);
        write_at(partition->batches + partition->size, base, 8);
        partition->size += size;
        partition->end_offset += number_at(batch + DELTA_AT, 4) + 1;
        return base;
}

/* Where the batch starts that begins with `offset`. */
static size_t find(struct partition *partition, int64_t offset) {
        if (offset < partition->read_offset)
                partition->read_offset = 0, partition->read_at = 0;
        must(offset <= partition->end_offset, "an offset behind the end");
        while (partition->read_offset < offset) {
                const char *batch = partition->batches + partition->read_at;
                partition->read_at += (size_t)number_at(batch + LENGTH_AT, 4) + LOG_OVERHEAD;
                partition->read_offset += number_at(batch + DELTA_AT, 4) + 1;
        }
        return partition->read_at;
}

static void api_versions(struct answer *out, int16_t version) {
        /* A request in an unknown version is answered in version 0, and the client retries. */
        int count = (int)(sizeof(SERVED) / sizeof(*SERVED));
        put(out, version ? UNSUPPORTED_VERSION : 0, 2);
        put(out, count, 4);
        for (int i = 0; i < count; i++) {
                put(out, SERVED[i][0], 2);
                put(out, SERVED[i][1], 2);
                put(out, SERVED[i][1], 2);
        }
}

static void metadata(struct answer *out, const char *at) {
        static const char host[] = "127.0.0.1";
        put(out, 1, 4);
        put(out, NODE, 4);
        put(out, sizeof(host) - 1, 2);
        put_bytes(out, host, sizeof(host) - 1);
        put(out, port, 4);
        put(out, -1, 2); /* no rack */
        put(out, NODE, 4);
        int32_t topics = (int32_t)take(&at, 4);
        put(out, topics > 0 ? topics : 0, 4);
        while (topics-- > 0) {
                put(out, 0, 2);
                echo_name(out, &at);
                put(out, 0, 1);
                put(out, PARTITIONS, 4);
                for (int i = 0; i < PARTITIONS; i++) {
                        put(out, 0, 2);
                        put(out, i, 4);
                        put(out, NODE, 4);
                        for (int nodes = 0; nodes < 2; nodes++) { /* replicas, then those in sync */
                                put(out, 1, 4);
                                put(out, NODE, 4);
                        }
                }
        }
}

static void list_offsets(struct answer *out, const char *at) {
        at += 4; /* no replica fetches here */
        int32_t topics = (int32_t)take(&at, 4);
        put(out, topics, 4);
        while (topics-- > 0) {
                echo_name(out, &at);
                int32_t count = (int32_t)take(&at, 4);
                put(out, count, 4);
                while (count-- > 0) {
                        put(out, take(&at, 4), 4);
                        at += 8; /* whatever the time, the beginning */
                        put(out, 0, 2);
                        put(out, -1, 8);
                        put(out, 0, 8);
                }
        }
}

static void produce(struct answer *out, const char *at) {
        int16_t id_size;
        take_text(&at, &id_size); /* of the transaction */
        at += 2 + 4;              /* acks, timeout */
        int32_t topics = (int32_t)take(&at, 4);
        put(out, topics, 4);
        while (topics-- > 0) {
                echo_name(out, &at);
                int32_t count = (int32_t)take(&at, 4);
                put(out, count, 4);
                while (count-- > 0) {
                        int32_t index = (int32_t)take(&at, 4), size = (int32_t)take(&at, 4);
                        put(out, index, 4);
                        put(out, 0, 2);
                        put(out, append(index, at, (size_t)size), 8);
                        put(out, -1, 8); /* no append time */
                        at += size;
                }
        }
        put(out, 0, 4); /* no throttling */
}

static void fetch(int fd, int32_t correlation, const char *at) {
        must(!reader.is_there, "a second reader");
        at += 4 + 4 + 4 + 4 + 1; /* replica, longest wait, fewest and most bytes, isolation level */
        must(take(&at, 4) == 1, "a Fetch of other than one topic");
        reader.is_there    = 1;
        reader.fd          = fd;
        reader.correlation = correlation;
        const char *topic  = take_text(&at, &reader.topic_size);
        must(reader.topic_size > 0 && reader.topic_size < NAME_BYTES, "a topic's name");
        memcpy(reader.topic, topic, (size_t)reader.topic_size);
        reader.count = (int32_t)take(&at, 4);
        must(reader.count > 0 && reader.count <= PARTITIONS, "a Fetch of too many partitions");
        for (int i = 0; i < reader.count; i++) {
                reader.wanted[i].partition = checked((int32_t)take(&at, 4));
                reader.wanted[i].offset    = take(&at, 8);
                at += 4; /* most bytes */
        }
}

static int has_news(void) {
        for (int i = 0; i < reader.count; i++)
                if (reader.wanted[i].offset < partitions[reader.wanted[i].partition].end_offset)
                        return 1;
        return 0;
}

/* Answer the Fetch that waits, if there is something for it. */
static void wake_reader(void) {
        static struct answer out;
        if (!reader.is_there || !has_news())
                return;
        out.size     = 0;
        size_t start = begin(&out, reader.correlation);
        put(&out, 0, 4); /* no throttling */
        put(&out, 1, 4);
        put(&out, reader.topic_size, 2);
        put_bytes(&out, reader.topic, (size_t)reader.topic_size);
        put(&out, reader.count, 4);
        for (int i = 0; i < reader.count; i++) {
                struct partition *partition = &partitions[reader.wanted[i].partition];
                size_t from = find(partition, reader.wanted[i].offset), size = partition->size - from;
                size = size < FETCH_BYTES ? size : FETCH_BYTES;
                put(&out, reader.wanted[i].partition, 4);
                put(&out, 0, 2);
                put(&out, partition->end_offset, 8); /* the high watermark */
                put(&out, partition->end_offset, 8); /* the last stable offset */
                put(&out, 0, 4);                     /* aborted transactions */
                put(&out, (int64_t)size, 4);
                put_bytes(&out, partition->batches + from, size);
        }
        end(&out, start);
        reader.is_there = 0;
        send_all(reader.fd, &out);
}

static void serve(int fd, const char *at, struct answer *out) {
        int16_t key = (int16_t)take(&at, 2), version = (int16_t)take(&at, 2);
        int32_t correlation = (int32_t)take(&at, 4);
        int16_t id_size;
        take_text(&at, &id_size); /* of the client */
        if (key == FETCH) {
                fetch(fd, correlation, at);
                return;
        }
        size_t start = begin(out, correlation);
        if (key == API_VERSIONS)
                api_versions(out, version);
        else if (key == METADATA)
                metadata(out, at);
        else if (key == LIST_OFFSETS)
                list_offsets(out, at);
        else if (key == PRODUCE)
                produce(out, at);
        else
                must(0, "a request that is not answered here");
        end(out, start);
}

static void close_connection(int slot) {
        if (reader.is_there && reader.fd == polled[slot].fd)
                reader.is_there = 0;
        close(polled[slot].fd);
        polled[slot].fd          = -1;
        connections[slot].filled = 0;
}

static void receive(int slot) {
        static struct answer out;
        struct connection *connection = &connections[slot];
        int fd                        = polled[slot].fd;
        ssize_t got = recv(fd, connection->frames + connection->filled, FRAME_BYTES - connection->filled, 0);
        if (got <= 0) {
                close_connection(slot);
                return;
        }
        connection->filled += (size_t)got;
        size_t at = 0;
        out.size  = 0;
        while (connection->filled - at >= 4) {
                size_t size = (size_t)number_at(connection->frames + at, 4);
                must(size + 4 <= FRAME_BYTES, "a frame is too large");
                if (connection->filled - at < size + 4)
                        break;
                serve(fd, connection->frames + at + 4, &out);
                at += size + 4;
        }
        memmove(connection->frames, connection->frames + at, connection->filled - at);
        connection->filled -= at;
        wake_reader();
        send_all(fd, &out);
}

static void admit(void) {
        int on = 1, fd = accept(polled[0].fd, NULL, NULL), slot = 1;
        if (fd < 0)
                return;
        while (slot <= CONNECTIONS && polled[slot].fd >= 0)
                slot++;
        must(slot <= CONNECTIONS, "too many connections");
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        polled[slot].fd = fd;
}

int main(int argc, char **argv) {
        must(argc == 2, "usage: echo PORT");
        port                       = atoi(argv[1]);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        address.sin_addr.s_addr    = htonl(INADDR_LOOPBACK);
        int on = 1, listening = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        must(!bind(listening, (struct sockaddr *)&address, sizeof(address)) && !listen(listening, CONNECTIONS), "listen");
        for (int slot = 0; slot <= CONNECTIONS; slot++)
                polled[slot] = (struct pollfd){.fd = slot ? -1 : listening, .events = POLLIN};
        while (poll(polled, 1 + CONNECTIONS, -1) >= 0) {
                if (polled[0].revents)
                        admit();
                for (int slot = 1; slot <= CONNECTIONS; slot++)
                        if (polled[slot].fd >= 0 && polled[slot].revents)
                                receive(slot);
        }
        return 1;
}
