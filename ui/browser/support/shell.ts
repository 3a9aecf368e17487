/** A real shell. */

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** What a command prints. */
export async function run(command: string): Promise<string> {
  return (await promisify(execFile)('sh', ['-c', command])).stdout;
}
