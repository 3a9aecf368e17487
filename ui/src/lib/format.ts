/** Numbers, times and durations in the reader's language. Times are local; `utc` is what hovering shows. */

export interface Units {
  ms: string;
  s: string;
  min: string;
  h: string;
  d: string;
}

let locale = 'en';
let units: Units = { ms: 'ms', s: 's', min: 'min', h: 'h', d: 'd' };
let sizes = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** Between a number and its unit: narrow and never broken. */
const THIN = '\u202f';

export function setFormat(to: string, words: Units, sizeWords: string[]): void {
  locale = to;
  units = words;
  sizes = sizeWords;
}

const cache = new Map<string, Intl.NumberFormat>();

function digits(value: number, most: number, least = 0): string {
  const key = `${locale} ${most} ${least}`;
  let format = cache.get(key);
  if (!format) {
    format = new Intl.NumberFormat(locale, { maximumFractionDigits: most, minimumFractionDigits: least });
    cache.set(key, format);
  }
  return format.format(value);
}

/** A count: `12,345`; from a million on `1.2 M`. */
export function count(value: number): string {
  if (Math.abs(value) < 1e6) return digits(value, 0);
  return new Intl.NumberFormat(locale, { notation: 'compact', maximumFractionDigits: 1 }).format(value);
}

/** A number with as many decimals as say something. */
export function decimal(value: number): string {
  const size = Math.abs(value);
  return digits(value, size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

/** A rate: `14.2/s`, and below one in ten seconds `3/min`. */
export function rate(perSecond: number): string {
  if (perSecond > 0 && perSecond < 0.1) return `${decimal(perSecond * 60)}/${units.min}`;
  return `${digits(perSecond, perSecond >= 100 ? 0 : 1)}/${units.s}`;
}

/** The same on the axis of a chart. */
export const rateTick = (perSecond: number): string => (perSecond === 0 ? '0' : `${decimal(perSecond)}/${units.s}`);

export function percent(share: number): string {
  const value = share * 100;
  // 99.97 % is not 100 %: whatever is missing is what one looks for.
  const shown = value < 100 && value > 99.9 ? Math.floor(value * 10) / 10 : value;
  return `${digits(shown, shown > 0 && shown < 10 ? 1 : shown > 99 && shown < 100 ? 1 : 0)}${THIN}%`;
}

export function bytes(value: number): string {
  let step = 0;
  let rest = value;
  while (rest >= 1024 && step < sizes.length - 1) {
    rest /= 1024;
    step++;
  }
  return `${digits(rest, step === 0 || rest >= 100 ? 0 : 1)}${THIN}${sizes[step]}`;
}

const amount = (value: number, unit: keyof Units): string => `${value}${THIN}${units[unit]}`;

/** A duration with at most two units: `420 ms`, `8 s`, `2 min 5 s`, `4 h 10 min`, `3 d`. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms)) return '–';
  const span = Math.max(0, ms);
  if (span < 1000) return amount(Math.round(span), 'ms');
  if (span < 9950) return `${digits(span / 1000, 1)}${THIN}${units.s}`;
  return wholeSeconds(Math.round(span / 1000));
}

/** A countdown or an age: whole seconds, so that it does not flicker. */
export function wholeSeconds(seconds: number): string {
  const all = Math.max(0, Math.round(seconds));
  if (all < 60) return amount(all, 's');
  if (all < 3600) return pair(Math.floor(all / 60), 'min', all % 60, 's');
  if (all < 86_400) return pair(Math.floor(all / 3600), 'h', Math.floor((all % 3600) / 60), 'min');
  return pair(Math.floor(all / 86_400), 'd', Math.floor((all % 86_400) / 3600), 'h');
}

function pair(big: number, bigUnit: keyof Units, small: number, smallUnit: keyof Units): string {
  return small === 0 ? amount(big, bigUnit) : `${amount(big, bigUnit)} ${amount(small, smallUnit)}`;
}

/** `14:03:24`; with the day if that is not today. */
export function time(at: string | number, now: number, millis = false): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return '–';
  const clock: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' };
  if (millis) clock.fractionalSecondDigits = 3;
  const today = new Date(now).toDateString() === date.toDateString();
  const day: Intl.DateTimeFormatOptions = today ? {} : { day: 'numeric', month: 'short' };
  const year: Intl.DateTimeFormatOptions = new Date(now).getFullYear() === date.getFullYear() ? {} : { year: 'numeric' };
  return new Intl.DateTimeFormat(locale, { ...clock, ...day, ...(today ? {} : year) }).format(date);
}

/** `14:03`, for the axis of a chart. */
export function minute(at: number): string {
  return new Intl.DateTimeFormat(locale, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }).format(at);
}

/** `2026-11-17 17:03:24.120 UTC`. */
export function utc(at: string | number): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? '' : date.toISOString().replace('T', ' ').replace('Z', ' UTC');
}

/** Local and in UTC: what hovering an age or a countdown shows. */
export const both = (at: string | number, now: number): string => `${time(at, now)} · ${utc(at)}`;

/** The first part of a long id, enough to recognise it. */
export function shortId(id: string): string {
  return /^[0-9a-f]{8}-[0-9a-f]{4}-/.test(id) ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}

export function json(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}
