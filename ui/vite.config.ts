import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

/** The server embeds this directory. */
const OUT = '../crates/eclusa/src/web/dist';

/** The byte of gzip's header that names the system: 255 is "unknown", so that all systems write the same. */
const GZIP_SYSTEM = 9;

/** Writes `NAME.br` and `NAME.gz` next to each built file: the server sends them as they are. */
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
        const gzip = gzipSync(raw, { level: constants.Z_BEST_COMPRESSION });
        gzip[GZIP_SYSTEM] = 255;
        writeFileSync(join(root, `${name}.gz`), gzip);
      }
    },
  };
}

/** Sizes are written in pixels of a usual screen; from this on they grow with the root's font. Thinner lines stay thin. */
const LEAST_GROWING_PX = 3;

/** `12px` as `0.75rem`, in declarations: breakpoints of media queries stay as they are. */
const growing = {
  postcssPlugin: 'growing',
  Declaration(declaration: { value: string }) {
    const sized = declaration.value.replace(/(?<![\w#.-])(\d*\.?\d+)px\b/g, (whole, size: string) =>
      Number(size) < LEAST_GROWING_PX ? whole : `${Number(size) / 16}rem`,
    );
    if (sized !== declaration.value) declaration.value = sized;
  },
};

export default defineConfig({
  plugins: [svelte(), precompress()],
  css: { postcss: { plugins: [growing] } },
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
  worker: {
    format: 'es',
    rolldownOptions: { output: { entryFileNames: 'assets/live-[hash].js' } },
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
