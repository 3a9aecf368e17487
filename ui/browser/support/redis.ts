/** A redis-server of its own, with nothing stored on disk. */

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** Another process may take the free port before the server does. */
const ATTEMPTS = 10;

export class Redis {
  private constructor(
    readonly url: string,
    private readonly child: ChildProcess,
    private readonly dir: string,
  ) {}

  static async start(): Promise<Redis> {
    const dir = mkdtempSync(join(tmpdir(), 'eclusa-redis-'));
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const port = await freePort();
      const child = spawn('redis-server', ['--bind', '127.0.0.1', '--port', String(port), '--dir', dir, '--save', ''], {
        stdio: ['ignore', 'pipe', 'ignore'],
      });
      // Also if the tests end early.
      process.once('exit', () => child.kill('SIGKILL'));
      if (await isReady(child)) return new Redis(`redis://127.0.0.1:${port}`, child, dir);
    }
    throw new Error('redis-server did not start; is it installed? (make setup)');
  }

  async stop(): Promise<void> {
    const ended = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await ended;
    rmSync(this.dir, { recursive: true, force: true });
  }
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1');
  await once(probe, 'listening');
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return port;
}

/** Whether it takes connections; it ends if it cannot. */
async function isReady(child: ChildProcess): Promise<boolean> {
  for await (const line of createInterface({ input: child.stdout! })) if (line.includes('Ready to accept')) return true;
  return false;
}
