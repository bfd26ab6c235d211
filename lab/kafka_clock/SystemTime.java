package org.apache.kafka.common.utils;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.Supplier;

/**
 * The clock of a Kafka broker in disasters, in place of Kafka's own class of this name.
 *
 * The wall clock is ahead by the milliseconds in the file of the property lab.clock, which may change while the
 * broker runs. The monotonic clock is the real one.
 */
class SystemTime implements Time {
    private static final long REFRESH_MS = 100;
    private static final SystemTime INSTANCE = new SystemTime(Path.of(System.getProperty("lab.clock")));

    private final Path file;
    private volatile long aheadMs;

    private SystemTime(Path file) {
        this.file = file;
        this.aheadMs = read();
        Thread refreshing = new Thread(this::refresh, "lab-clock");
        refreshing.setDaemon(true);
        refreshing.start();
    }

    static SystemTime getSystemTime() {
        return INSTANCE;
    }

    private long read() {
        try {
            return Long.parseLong(Files.readString(file).trim());
        } catch (IOException error) {
            throw new IllegalStateException("the clock file cannot be read: " + file, error);
        }
    }

    private void refresh() {
        while (true) {
            aheadMs = read();
            Utils.sleep(REFRESH_MS);
        }
    }

    @Override
    public long milliseconds() {
        return System.currentTimeMillis() + aheadMs;
    }

    @Override
    public long nanoseconds() {
        return System.nanoTime();
    }

    @Override
    public void sleep(long ms) {
        Utils.sleep(ms);
    }

    @Override
    public void waitObject(Object guard, Supplier<Boolean> isDone, long deadlineMs) throws InterruptedException {
        synchronized (guard) {
            while (!isDone.get()) {
                long leftMs = deadlineMs - milliseconds();
                if (leftMs <= 0) {
                    throw new org.apache.kafka.common.errors.TimeoutException("the condition was not met in time");
                }
                guard.wait(leftMs);
            }
        }
    }
}
