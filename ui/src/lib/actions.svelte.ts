/** What an action asks before it is done. One dialog shows whichever is asked. */

export interface Action {
  title: string;
  /** What it will do, in a sentence; may have emphasised parts. */
  body: string;
  /** What else it is about, as it is: a filter, a patch. */
  detail?: string;
  /** The label of the button that asked, whose ellipsis says that it asks. */
  label: string;
  danger?: boolean;
  /** How much it would be, counted by the server. */
  preview?: (counting: Work) => Promise<{ count: number; text: string }>;
  /** Whether it is done part by part: then it tells how far it is, and can be stopped. */
  inParts?: boolean;
  /** Does it. Returns what to say afterwards. */
  run: (work: Work) => Promise<string | { text: string; link?: { href: string; text: string } }>;
}

/** Something that takes a while. */
export interface Work {
  /** Aborted when the reader does not want it to go on. */
  signal: AbortSignal;
  /** Takes how many it is so far. */
  reached: (count: number) => void;
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
