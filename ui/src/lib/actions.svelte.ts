/** What an action asks before it is done. One dialog shows whichever is asked. */

export interface Action {
  title: string;
  /** What it will do, in a sentence; may have emphasised parts. */
  body: string;
  /** What else it is about, as it is: a filter, a patch. */
  detail?: string;
  label: string;
  danger?: boolean;
  /** How much it would be, counted by the server. */
  preview?: () => Promise<{ count: number; text: string }>;
  /** Does it; `progress` takes what to show meanwhile. Returns what to say afterwards. */
  run: (progress: (text: string) => void) => Promise<string | { text: string; link?: { href: string; text: string } }>;
}

class Asked {
  current = $state.raw<Action | undefined>();

  ask(action: Action): void {
    this.current = action;
  }

  done(): void {
    this.current = undefined;
  }
}

export const actions = new Asked();
