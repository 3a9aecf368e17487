/** Commands to paste into a shell. */

import type { Job } from './types';

/** A word that no shell interprets. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Masked values are not sent: the upstream would get asterisks. */
function unmasked(headers: Record<string, string>): Record<string, string> | undefined {
  const kept = Object.entries(headers).filter(([, value]) => value !== '***');
  return kept.length > 0 ? Object.fromEntries(kept) : undefined;
}

/** The call that enqueues the same job again, as a new one. */
export function jobAsCurl(job: Job, origin: string, withKey: boolean): string {
  const body: Record<string, unknown> = { tenant: job.tenant, priority: job.priority };
  if (job.type) body.type = job.type;
  if (job.params !== undefined && job.params !== null) body.params = job.params;
  if (job.message !== undefined && job.message !== null) body.message = job.message;
  if (job.request) {
    const { method, path, query, headers, body: content } = job.request;
    const request: Record<string, unknown> = { method, path };
    if (query !== undefined && query !== '') request.query = query;
    const sent = unmasked(headers);
    if (sent) request.headers = sent;
    if (content !== undefined && content !== '' && content !== null) request.body = content;
    body.request = request;
  }
  const lines = [`curl -i -X POST ${quoted(`${origin}/v1/lanes/${encodeURIComponent(job.lane)}/jobs`)}`];
  if (withKey) lines.push(`-H "Authorization: Bearer $ECLUSA_KEY"`);
  lines.push(`-H 'Content-Type: application/json'`, `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(' \\\n  ');
}

/** The first job of a fresh server. */
export function firstJob(origin: string, lane: string, direct: boolean, withKey: boolean): string {
  const lines = ['curl -i'];
  if (withKey) lines[0] += ` -H "Authorization: Bearer $ECLUSA_KEY"`;
  if (!direct) lines[0] += ` -H 'Prefer: wait=10'`;
  lines.push(quoted(`${origin}/proxy/${encodeURIComponent(lane)}/`));
  return lines.join(' \\\n  ');
}
