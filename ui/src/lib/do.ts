/** Every action of the pages: what it says before, what it calls, what it says after. */

import { actions } from './actions.svelte';
import { ApiError, del, path, post, type Query } from './api';
import { act, preview, type Done } from './bulk';
import { clock } from './clock.svelte';
import { count } from './format';
import { waiting } from './gates';
import { m } from './i18n/index.svelte';
import { live } from './live.svelte';
import { href } from './routes';
import type { Filter } from './paged.svelte';
import { filterWords } from './words';
import type { Job, Lane, Replay } from './types';

/** Something about what is shown may have changed: pages that do not hear of it by the stream load again. */
type After = () => void;

/** What a bulk action says when it has ended. */
const ended = ({ count: many, stopped }: Done, say: (many: number, shown: string) => string): string => {
  const said = say(many, count(many));
  return stopped ? m.common.stopped(said) : said;
};

export function pauseLane(lane: Lane): void {
  actions.ask({
    title: m.lanes.pauseTitle(lane.name),
    body: m.lanes.pauseBody(lane.name),
    label: m.lanes.pause,
    run: async () => {
      live.hear({ type: 'lanes', data: [await post<Lane>(path`/v1/lanes/${lane.name}/pause`)] });
      return m.lanes.pauseDone(lane.name);
    },
  });
}

export function resumeLane(lane: Lane): void {
  actions.ask({
    title: m.lanes.resumeTitle(lane.name),
    body: m.lanes.resumeBody(lane.name, waiting(lane), count(waiting(lane))),
    label: m.lanes.resume,
    run: async () => {
      live.hear({ type: 'lanes', data: [await post<Lane>(path`/v1/lanes/${lane.name}/resume`)] });
      return m.lanes.resumeDone(lane.name);
    },
  });
}

/** Cancels what waits; calls in flight go on. */
export function purgeLane(lane: string): void {
  const parts: Query[] = [
    { lane, status: 'queued' },
    { lane, status: 'pending' },
  ];
  actions.ask({
    title: m.lanes.purgeTitle(lane),
    body: m.lanes.purgeBody(lane),
    label: m.lanes.purge,
    danger: true,
    inParts: true,
    preview: async ({ signal, reached }) => {
      let jobs = 0;
      for (const filter of parts) {
        const before = jobs;
        jobs += await preview('/v1/jobs', filter, { signal, reached: (n) => reached(before + n) });
      }
      return { count: jobs, text: m.jobs.counted(jobs, count(jobs)) };
    },
    run: async ({ signal, reached }) => {
      let all: Done = { count: 0, stopped: false };
      for (const filter of parts) {
        const before = all.count;
        const done = await act('/v1/jobs', filter, { signal, reached: (n) => reached(before + n) });
        all = { count: before + done.count, stopped: done.stopped };
        if (all.stopped) break;
      }
      return ended(all, m.jobs.cancelled);
    },
  });
}

const shown = (filter: Filter): string => filterWords(m, filter, clock.now).join('\n');

export function cancelJobs(filter: Filter, after: After): void {
  actions.ask({
    title: m.jobs.bulkTitle,
    body: m.jobs.bulkBody,
    detail: shown(filter),
    label: m.jobs.bulk,
    danger: true,
    inParts: true,
    preview: async (counting) => {
      const jobs = await preview('/v1/jobs', filter, counting);
      return { count: jobs, text: m.jobs.counted(jobs, count(jobs)) };
    },
    run: async (work) => ended(await act('/v1/jobs', filter, work).finally(after), m.jobs.cancelled),
  });
}

export function cancelJob(job: Job, after: After): void {
  actions.ask({
    title: m.job.cancelTitle,
    body: m.job.cancelBody(job.id),
    label: m.job.cancel,
    danger: true,
    run: async () => {
      await del(path`/v1/jobs/${job.jobId}`);
      after();
      return m.job.cancelDone;
    },
  });
}

export function resetUpstream(name: string): void {
  actions.ask({
    title: m.upstreams.resetTitle(name),
    body: m.upstreams.resetBody(name),
    label: m.upstreams.reset,
    run: async () => {
      await post(path`/v1/breakers/${name}/reset`);
      return m.upstreams.resetDone(name);
    },
  });
}

/** `patch` is a merge patch over what was to be sent. */
export function replayLetter(
  letter: { jobId: string; outboxId: string },
  patch: unknown,
  after: (replayedBy: string | undefined) => void,
): void {
  actions.ask({
    title: m.letters.replayOneTitle,
    body: `${m.letters.replayOneBody(letter.outboxId)}${patch === undefined ? '' : ` ${m.letters.replayPatched}`}`,
    ...(patch === undefined ? {} : { detail: JSON.stringify(patch, null, 2) }),
    label: m.letters.replay,
    run: async () => {
      const accepted = await post<{ jobId?: string }>(path`/v1/dead-letters/${letter.jobId}/replay`, patch);
      after(accepted.jobId);
      const link = accepted.jobId ? { href: href('jobs', accepted.jobId), text: m.letters.openJob } : undefined;
      return { text: m.letters.replayOneDone, ...(link ? { link } : {}) };
    },
  });
}

export function discardLetter(letter: { jobId: string; outboxId: string }, after: After): void {
  actions.ask({
    title: m.letters.discardTitle,
    body: m.letters.discardBody(letter.outboxId),
    label: m.letters.discard,
    danger: true,
    run: async () => {
      await del(path`/v1/dead-letters/${letter.jobId}`);
      after();
      return m.letters.discardDone;
    },
  });
}

/** More would not be read. */
const NAMED = 10;

type Letters = { jobId: string; outboxId: string }[];

/** One letter after the other; calls `done` after each. One that no longer exists counts as done. */
function askForEach(
  letters: Letters,
  words: { title: string; body: string; label: string; danger?: boolean; said: (count: number, shown: string) => string },
  act: (url: string) => Promise<unknown>,
  done: (jobId: string) => void,
): void {
  const { title, body, label, danger = false, said } = words;
  const names = letters.slice(0, NAMED).map(({ outboxId }) => outboxId);
  actions.ask({
    title,
    body,
    detail: [...names, ...(letters.length > NAMED ? ['…'] : [])].join('\n'),
    label,
    danger,
    preview: async () => ({ count: letters.length, text: m.letters.chosen(letters.length, count(letters.length)) }),
    inParts: true,
    run: async ({ signal, reached }) => {
      for (const [i, { jobId }] of letters.entries()) {
        if (signal.aborted) return ended({ count: i, stopped: true }, said);
        await act(path`/v1/dead-letters/${jobId}`).catch((error: unknown) => {
          if (!(error instanceof ApiError && error.status === 404)) throw error;
        });
        done(jobId);
        reached(i + 1);
      }
      return ended({ count: letters.length, stopped: false }, said);
    },
  });
}

export function replaySelected(letters: Letters, done: (jobId: string) => void): void {
  const { replaySelectedTitle: title, replayBody: body, replaySelected: label, enqueued: said } = m.letters;
  askForEach(letters, { title, body, label, said }, (url) => post(`${url}/replay`), done);
}

export function discardSelected(letters: Letters, done: (jobId: string) => void): void {
  const { discardSelectedTitle: title, purgeBody: body, discardSelected: label, purged: said } = m.letters;
  askForEach(letters, { title, body, label, said, danger: true }, (url) => del(url), done);
}

export function replayLetters(filter: Filter, after: After): void {
  actions.ask({
    title: m.letters.replayTitle,
    body: m.letters.replayBody,
    detail: shown(filter) || m.letters.everything,
    label: m.letters.replay,
    preview: async ({ signal }) => {
      const { matched } = await post<{ matched: number }>('/v1/dead-letters/replay', { filter, dryRun: true }, signal);
      return { count: matched, text: m.letters.counted(matched, count(matched)) };
    },
    run: async () => {
      await post('/v1/dead-letters/replay', { filter, dryRun: false });
      after();
      return m.letters.started;
    },
  });
}

export function purgeLetters(filter: Filter, after: After): void {
  actions.ask({
    title: m.letters.purgeTitle,
    body: m.letters.purgeBody,
    detail: shown(filter),
    label: m.letters.purgeAll,
    danger: true,
    inParts: true,
    preview: async (counting) => {
      const letters = await preview('/v1/dead-letters', filter, counting);
      return { count: letters, text: m.letters.counted(letters, count(letters)) };
    },
    run: async (work) => ended(await act('/v1/dead-letters', filter, work).finally(after), m.letters.purged),
  });
}

export function stopReplay(replay: Replay, after: After): void {
  actions.ask({
    title: m.letters.stopTitle,
    body: m.letters.stopBody,
    label: m.letters.stop,
    danger: true,
    run: async () => {
      await del(path`/v1/dead-letters/replays/${replay.replayId}`);
      after();
      return m.letters.stopDone;
    },
  });
}
