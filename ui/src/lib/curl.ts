/** Commands to paste into a shell. */

import type { Messages } from './i18n/en';
import type { Job, JobRequest, Lane, Message } from './types';

const KEY = '-H "Authorization: Bearer $ECLUSA_KEY"';

/** A word that no shell interprets. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** What the server shows in place of a hidden value. */
const MASK = '***';

type Headers = Record<string, string | string[]>;

/** Whether the value, or one in it, is hidden. */
function isMasked(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).some(isMasked);
  return value === MASK;
}

/** One value per name, without masked headers: the upstream would get asterisks. */
function sendable(headers: Headers = {}): Record<string, string> {
  const kept = Object.entries(headers).filter(([, value]) => !isMasked(value));
  return Object.fromEntries(kept.map(([name, value]) => [name, Array.isArray(value) ? value.join(', ') : value]));
}

const isFilled = (value: unknown): boolean => value !== undefined && value !== null && value !== '';

/** How the server shows bytes that are not text. */
const isBinary = (body: unknown): boolean => typeof body === 'object' && body !== null && Object.keys(body).join() === 'base64';

/** What is wrong with the command for a job, because not everything that the job sends is shown. */
export function lacks(job: Job, m: Messages): string[] {
  const { request, message } = job;
  const query = /=%2A%2A%2A(&|$)/.test(request?.query ?? '');
  const { headers, attachments, ...content } = message ?? {};
  const masked = { query, body: isMasked(request?.body), message: isMasked(content), params: isMasked(job.params) };
  const parts = Object.entries(masked).filter(([, is]) => is);
  const said: [unknown, string][] = [
    [parts.length > 0, m.curl.masked(parts.map(([name]) => name).join(', '))],
    [isMasked(request?.headers) || isMasked(headers), m.curl.headers],
    [isBinary(request?.body), m.curl.binary],
    [attachments?.length, m.curl.attachments],
    [message && !message.to && !message.cc && !message.bcc, m.curl.recipients],
  ];
  return said.filter(([is]) => is).map(([, text]) => text);
}

function requestOf({ method, path, query, headers, body }: JobRequest): Record<string, unknown> {
  const sent = sendable(headers);
  return {
    method,
    path,
    ...(isFilled(query) ? { query } : {}),
    ...(Object.keys(sent).length > 0 ? { headers: sent } : {}),
    ...(isFilled(body) ? { body } : {}),
  };
}

function messageOf({ attachments: _, headers, ...message }: Message): Record<string, unknown> {
  const sent = sendable(headers);
  return Object.keys(sent).length > 0 ? { ...message, headers: sent } : message;
}

/** The call that enqueues the same job again, as a new one. Comments above it say what it lacks. */
export function jobAsCurl(job: Job, origin: string, withKey: boolean, m: Messages): string {
  const body: Record<string, unknown> = { tenant: job.tenant, priority: job.priority };
  if (job.type) body.type = job.type;
  if (isFilled(job.params)) body.params = job.params;
  if (job.message) body.message = messageOf(job.message);
  if (job.request) body.request = requestOf(job.request);
  const comments = lacks(job, m).map((text) => `# ${text}\n`);
  return comments.join('') + enqueue(job.lane, body, origin, withKey);
}

function enqueue(lane: string, body: unknown, origin: string, withKey: boolean): string {
  const lines = [`curl -i -X POST ${quoted(`${origin}/v1/lanes/${encodeURIComponent(lane)}/jobs`)}`];
  if (withKey) lines.push(KEY);
  lines.push(`-H 'Content-Type: application/json'`, `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(' \\\n  ');
}

/** The lane to try first, if one has an example: best one that queues requests. */
export function firstLane(lanes: Lane[]): Lane | undefined {
  const rank = ({ mode, example }: Lane) => (mode === 'direct' ? 2 : example?.request ? 0 : 1);
  const usable = lanes.filter(({ example }) => example !== undefined);
  return usable.sort((a, b) => rank(a) - rank(b))[0];
}

/** The first job of a fresh server: its request as it is, if that is all. */
export function firstJob({ name, mode, example = {} }: Lane, origin: string, withKey: boolean): string {
  const { request, ...others } = example;
  if (!request || Object.keys(others).length > 0) return enqueue(name, example, origin, withKey);
  const { method, path, query, headers = {}, body } = request;
  const parts = [method === undefined ? 'curl -i' : `curl -i -X ${quoted(method)}`];
  if (withKey) parts.push(KEY);
  if (mode !== 'direct') parts.push(`-H 'Prefer: wait=10'`);
  parts.push(...Object.entries(headers).map(([header, value]) => `-H ${quoted(`${header}: ${value}`)}`));
  if (body !== undefined) parts.push(`-H 'Content-Type: application/json'`, `-d ${quoted(JSON.stringify(body))}`);
  const search = query ? `?${new URLSearchParams(query)}` : '';
  return `${parts.join(' ')} \\\n  ${quoted(`${origin}/proxy/${encodeURIComponent(name)}${path}${search}`)}`;
}
