/** Faults of the store and the fleet, in the reader's language. What is not known is shown as the server wrote it. */

import type { Messages } from './i18n/en';

/** The server gives no arguments: they are in its sentence. */
const TAKEOVER = /^Process ([0-9a-f]+)( \(this one\))? decides now, in epoch (\d+)/;

export function faultText(m: Messages, fault: { code: string; text: string }): string {
  const { takeover, ...known } = m.fleet.faultText;
  if (fault.code === 'takeover') {
    const [, process, self, epoch] = TAKEOVER.exec(fault.text) ?? [];
    return process && epoch ? takeover(process, epoch, self !== undefined) : fault.text;
  }
  return (known as Record<string, string>)[fault.code] ?? fault.text;
}
