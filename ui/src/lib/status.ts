/** The sentence of `/v1/status` and of alerts, in the reader's language. What is not known is shown as the server wrote it. */

import { count, percent, rate, time, wholeSeconds } from './format';
import type { AlertArgs, HeldArgs, Messages } from './i18n/en';
import { em, moment } from './i18n/rich';
import type { Alert, Args, Need, Sentence } from './types';

const text = (value: Args[string]): string => (value == null ? '' : String(value));
const number = (value: Args[string]): number => Number(value ?? 0);
const clock = (value: Args[string], now: number): string | undefined =>
  value ? moment(String(value), time(String(value), now)) : undefined;

function held(m: Messages, args: Args, now: number): string {
  const waiting = number(args.waiting);
  const a: HeldArgs = {
    lane: text(args.lane),
    upstream: text(args.upstream),
    limit: args.limit == null ? undefined : count(number(args.limit)),
    waiting,
    count: count(waiting),
    opensAt: clock(args.opensAt, now),
    lastStart: clock(args.lastStart, now),
    others: number(args.others),
  };
  const known = m.status.held as Record<string, (a: HeldArgs) => string>;
  const reason = text(args.reason);
  // A gate of the lane itself has no upstream to speak of.
  if (!a.upstream) a.upstream = a.lane;
  return (Object.hasOwn(known, reason) ? known[reason] : known.other)!(a);
}

/** The main sentence. */
export function sentence(m: Messages, status: Sentence, now: number): string {
  const { args } = status;
  switch (status.code) {
    case 'fresh':
      return m.status.fresh;
    case 'flows':
      return number(args.perSecond) > 0 ? m.status.flows(rate(number(args.perSecond))) : m.status.flowsIdle;
    case 'held':
      return held(m, args, now);
    case 'paused':
      return m.status.paused(text(args.lane), number(args.waiting), count(number(args.waiting)), number(args.others));
    case 'rules_gone':
      return m.status.rules_gone(text(args.lane), number(args.waiting), count(number(args.waiting)), number(args.others));
    case 'store_lost':
      return m.status.store_lost(clock(args.since, now));
    case 'rest_flows':
      return m.status.rest_flows;
    case 'fleet':
      return m.status.fleet(number(args.processes), text(args.owner), args.ack ? ack(m, text(args.ack)) : undefined);
    default:
      return status.text;
  }
}

export function ack(m: Messages, word: string): string {
  const { other, ...known } = m.status.acks;
  return (known as Record<string, string>)[word] ?? other(word);
}

/** One thing that needs somebody, and what happens if nobody comes. */
export function need(m: Messages, item: Need, now: number, alert?: Alert): { what: string; itself: string } {
  const { args } = item;
  const until = clock(args.until, now);
  switch (item.code) {
    case 'dead_letters': {
      const n = number(args.count);
      const most = (name: Args[string], size: Args[string]) =>
        name == null ? undefined : { name: text(name), count: count(number(size)) };
      const code = most(args.topCode, args.topCodeCount);
      const tenant = most(args.topTenant, args.topTenantCount);
      return {
        what: m.needs.dead_letters(text(args.lane), n, count(n), code, tenant),
        itself: until ? m.needs.keptUntil(until) : m.needs.kept,
      };
    }
    case 'upstream_hot':
      return {
        what: m.needs.upstream_hot(text(args.upstream), number(args.errors), count(number(args.errors))),
        itself: recovers(m, until, args),
      };
    case 'breaker_open':
      return {
        what: m.needs.breaker_open(text(args.upstream)),
        itself: recovers(m, until, args),
      };
    case 'paused':
      return {
        what: m.needs.paused(text(args.lane), number(args.waiting), count(number(args.waiting))),
        itself: m.needs.untilResumed,
      };
    case 'differs':
      return {
        what: m.needs.differs(text(args.process), number(args.count), count(number(args.count))),
        itself: m.needs.newestRules,
      };
    case 'alert':
      return {
        what: alert ? alertText(m, alert) : alertText(m, { ...fromArgs(args), text: item.text }),
        itself: m.needs.goesAway,
      };
    default:
      return { what: item.text, itself: '' };
  }
}

/** When an upstream is tried again, and which one replaces it meanwhile. */
function recovers(m: Messages, until: string | undefined, args: Args): string {
  const again = until ? m.needs.triedAgain(until) : m.needs.goesAway;
  return args.fallback == null ? again : `${again}, ${m.needs.stepsIn(text(args.fallback))}`;
}

type AlertLike = Pick<Alert, 'name' | 'text'> & Partial<Omit<Alert, 'name' | 'text'>>;

function fromArgs(args: Args): AlertLike {
  const optional = (name: string) => (args[name] == null ? {} : { [name]: args[name] });
  return {
    name: text(args.name),
    text: '',
    ...optional('lane'),
    ...optional('upstream'),
    ...optional('policy'),
    ...optional('tenant'),
    ...optional('value'),
    ...optional('threshold'),
  };
}

/** Alerts whose sentence says how much it is. */
const MEASURED = new Set(['dead_letters', 'dead_letter_rate', 'tenant_dead_letters', 'oldest_wait', 'redis_memory']);

export function alertText(m: Messages, alert: AlertLike): string {
  const known = m.alerts.text as Record<string, (a: AlertArgs) => string>;
  const say = Object.hasOwn(known, alert.name) ? known[alert.name] : undefined;
  if (!say || (alert.value === undefined && MEASURED.has(alert.name))) {
    return alert.text.replace(/^Resolved: /, '').replace(/`([^`]*)`/g, (_, name: string) => em(name));
  }
  const value = alert.value ?? 0;
  const threshold = alert.threshold ?? 0;
  return say({
    lane: alert.lane ?? '',
    upstream: alert.upstream ?? '',
    policy: alert.policy ?? '',
    tenant: alert.tenant ?? '',
    value: count(value),
    threshold: count(threshold),
    share: percent(value),
    shareLimit: percent(threshold),
    time: wholeSeconds(value),
    timeLimit: wholeSeconds(threshold),
  });
}
