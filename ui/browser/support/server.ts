/** The real binary with a store of its own, and a client for its API. */

import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { until } from './until';

const BINARY = process.env.ECLUSA_BIN ?? join(import.meta.dirname, '../../../target/debug/eclusa');

export type Line = { message: string } & Record<string, unknown>;

export class Server {
  url = '';
  readonly #dir = mkdtempSync(join(tmpdir(), 'eclusa-browser-'));
  readonly #log: Line[] = [];
  #process: ChildProcess | undefined;

  private constructor(
    private readonly config: string,
    /** Sent with every call. */
    private readonly key: string | undefined,
    private readonly store: string,
  ) {}

  /** Starts on a free port. `config` has everything but the server, the store and the log. */
  static async start(config: string, key?: string, store = 'embedded:data'): Promise<Server> {
    const server = new Server(config, key, store);
    await server.#run('127.0.0.1:0');
    return server;
  }

  async #run(listen: string): Promise<void> {
    const path = join(this.#dir, 'eclusa.toml');
    writeFileSync(
      path,
      `[server]\nlisten = "${listen}"\ndrain = "0s"\n[store]\nurl = "${this.store}"\nack = "write"\n` +
        `[log]\nformat = "json"\n${this.config}`,
    );
    const child = spawn(BINARY, ['serve', '--config', path], {
      cwd: this.#dir,
      env: {},
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    // Also if the tests end early.
    process.once('exit', () => child.kill('SIGKILL'));
    this.#process = child;
    this.#log.length = 0;
    createInterface({ input: child.stderr }).on('line', (line) => this.#log.push(parsed(line)));
    const refused = once(child, 'exit').then(() => {
      throw new Error(`The server ended: ${JSON.stringify(this.#log, null, 1)}`);
    });
    const listening = await Promise.race([this.logged('Listening'), refused]);
    this.url = `http://${listening.address}`;
  }

  /** Ends it like a power cut. */
  async kill(): Promise<void> {
    const child = this.#process;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  }

  /** Starts it again after `kill`: the same port, the same store. */
  async restart(): Promise<void> {
    await this.#run(new URL(this.url).host);
  }

  async stop(): Promise<void> {
    await this.kill();
    rmSync(this.#dir, { recursive: true, force: true });
  }

  /** The line of the log with this message and these fields, once it is there. */
  logged(message: string, fields: Record<string, unknown> = {}): Promise<Line> {
    const fits = (line: Line) =>
      line.message?.startsWith(message) && Object.entries(fields).every(([name, value]) => line[name] === value);
    return until(
      `the line "${message}" ${JSON.stringify(fields)}`,
      () => this.#log.find(fits),
      () => this.#log,
    );
  }

  async call<T>(method: string, path: string, body?: unknown): Promise<T> {
    const answer = await fetch(this.url + path, {
      method,
      headers: {
        ...(this.key ? { Authorization: `Bearer ${this.key}` } : {}),
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return JSON.parse(text) as T;
  }

  get<T>(path: string): Promise<T> {
    return this.call<T>('GET', path);
  }

  post<T>(path: string, body?: unknown): Promise<T> {
    return this.call<T>('POST', path, body);
  }

  /** Enqueues jobs and returns their ids. */
  async enqueue(lane: string, jobs: object[]): Promise<string[]> {
    const accepted = await this.post<{ jobId: string }[]>(`/v1/lanes/${lane}/jobs/batch`, jobs);
    return accepted.map((job) => {
      if (!job.jobId) throw new Error(JSON.stringify(job));
      return job.jobId;
    });
  }

  /** Waits until what the API answers is as wanted. */
  async until<T>(path: string, wanted: (answer: T) => boolean): Promise<T> {
    let answer: T | undefined;
    const ask = async () => {
      answer = await this.get<T>(path);
      return wanted(answer) && answer;
    };
    return until(`${path} as wanted`, ask, () => answer);
  }
}

function parsed(line: string): Line {
  try {
    return JSON.parse(line) as Line;
  } catch {
    return { message: line };
  }
}
