import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { brotliCompressSync, constants } from 'node:zlib';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

/** The server embeds this directory. */
const OUT = '../crates/eclusa/src/web/dist';

/** Writes `NAME.br` next to each built file: the server sends it as is. */
function precompress(): Plugin {
  let root = '';
  return {
    name: 'precompress',
    apply: 'build',
    configResolved(config) {
      root = resolve(config.root, config.build.outDir);
    },
    closeBundle() {
      for (const name of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
        if (!/\.(html|js|css)$/.test(name)) continue;
        const raw = readFileSync(join(root, name));
        const params = {
          [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY,
          [constants.BROTLI_PARAM_SIZE_HINT]: raw.length,
        };
        writeFileSync(join(root, `${name}.br`), brotliCompressSync(raw, { params }));
      }
    },
  };
}

export default defineConfig({
  plugins: [svelte(), precompress()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    // `light-dark()` must reach the browser unchanged: the theme switch sets `color-scheme`.
    target: ['chrome123', 'firefox121', 'safari17.5'],
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: {
        codeSplitting: false,
        entryFileNames: 'assets/app-[hash].js',
        assetFileNames: 'assets/app-[hash][extname]',
      },
    },
  },
  server: {
    host: '127.0.0.1',
    // `npm run dev` next to a running server: `ECLUSA_URL` says where.
    proxy: { '/v1': process.env.ECLUSA_URL ?? 'http://127.0.0.1:8080' },
  },
  test: {
    include: ['src/**/*.test.ts'],
    environment: 'node',
    // Times are local in the pages; the tests fix the zone.
    env: { TZ: 'America/Sao_Paulo' },
  },
} as Parameters<typeof defineConfig>[0]);
