import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    root: import.meta.dirname,
    include: ['*.test.ts'],
    environment: 'node',
    // Longer than `until` waits: that says what did not happen.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    // A file has one browser and one server; two files at a time are enough.
    maxWorkers: 2,
  },
});
