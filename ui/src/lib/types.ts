/** What the server answers, as the pages use it. Fields that a newer or older server leaves out are optional. */

export type Iso = string;

export const REASONS = [
  'paused',
  'scheduled',
  'retry_backoff',
  'behind',
  'pace',
  'rate_limit',
  'window',
  'concurrency',
  'cooldown',
  'circuit_open',
  'upstream_retry_after',
  'coalesced',
  'awaiting_webhook',
  'no_worker',
  'rules_gone',
  'store_unavailable',
] as const;
export type Reason = (typeof REASONS)[number];

export type Priority = 'high' | 'normal' | 'low';
export const PRIORITIES: readonly Priority[] = ['high', 'normal', 'low'];

export const STATUSES = ['pending', 'queued', 'processing', 'completed', 'failed', 'dropped', 'cancelled'] as const;
export type JobStatus = (typeof STATUSES)[number];

const FINAL: ReadonlySet<string> = new Set<JobStatus>(['completed', 'failed', 'dropped', 'cancelled']);
/** Whether a job with this status changes no more. Events that end a job have the names of these statuses. */
export const isFinal = (status: string): boolean => FINAL.has(status);

/** Whose a gate is; of the lane if nothing is given. */
export interface Owner {
  upstream?: string | null;
  tenant?: string;
  policy?: string;
  /** `upstream`, or the keyed hash of a value. */
  scope?: string;
}

export interface Gate extends Owner {
  reason: Reason;
  open: boolean;
  until: Iso | null;
  level: number;
  limit: number | null;
}

export interface Held {
  reason: Reason;
  upstream?: string;
  until?: Iso | null;
}

/** A job to enqueue. */
export interface Example {
  id?: string;
  request?: {
    method?: string;
    path: string;
    query?: Record<string, string>;
    headers?: Record<string, string>;
    body?: unknown;
  };
  message?: unknown;
  params?: unknown;
}

export interface Lane {
  name: string;
  paused: boolean;
  queued: Record<Priority, number>;
  pending: number;
  processing: number;
  waitingBytes: number;
  finished: number;
  deadLetters: number;
  rates: {
    accepted: number;
    started: number;
    completed: number;
    failed: number;
    dropped: number;
    answered: number;
    seconds: number;
  };
  totals: Record<
    | 'accepted'
    | 'started'
    | 'completed'
    | 'coalesced'
    | 'cacheHits'
    | 'fallbacks'
    | 'failed'
    | 'cancelled'
    | 'expired'
    | 'preempted'
    | 'refused'
    | 'deadLetters'
    | 'deadLettersTrimmed',
    number
  >;
  answers: Record<string, number>;
  gates: Gate[];
  capacity?: number | null;
  oldestWaitingAt?: Iso | null;
  held?: Held | null;
  lastStart?: Iso | null;
  willExpire?: number;
  chain?: string[];
  mode?: 'queue' | 'direct';
  ttlSec?: number | null;
  /** A job that the lane accepts; while it is unused. */
  example?: Example;
  quotes?: { count: number; p50Sec: number; p95Sec: number } | null;
}

export interface Percentiles {
  p50: number;
  p95: number;
}

export interface UpstreamKey {
  name: string;
  inFlight: number;
  requestsLastMinute: number;
  gates: Gate[];
}

export interface Upstream extends UpstreamKey {
  pace?: { rate: number; adaptive: boolean; floorLatencyMs?: number };
  keys?: UpstreamKey[];
  errorsLastMinute?: number;
  latencyMs?: Percentiles | null;
  lastFailure?: { code: string; at: Iso } | null;
}

export interface Alert {
  name: string;
  severity: 'warning' | 'critical';
  lane?: string;
  upstream?: string;
  policy?: string;
  tenant?: string;
  value: number;
  threshold: number;
  since: Iso | null;
  resolvedAt?: Iso;
  text: string;
}

export interface Alerts {
  alerts: Alert[];
  recent: Alert[];
}

export interface Instance {
  id: string;
  role: string;
  rules?: string;
  differs: number;
  differing?: string[];
  leaving: boolean;
  self?: boolean;
  owner?: boolean;
}

export interface Fleet {
  status?: string;
  store: {
    kind: string;
    status: string;
    losses: number;
    ack?: string | null;
    journalBytes?: number | null;
    url?: string | null;
  };
  owner?: { id: string; epoch: number; since: Iso | null } | null;
  instances: Instance[];
  version?: string;
  startedAt?: Iso;
  faults?: { at: Iso; code: string; text: string }[];
}

export type Args = Record<string, string | number | null | undefined>;

export interface Sentence {
  code: string;
  args: Args;
  text: string;
}

export interface Need extends Sentence {
  severity: 'warning' | 'critical';
  since?: Iso | null;
  link?: string | null;
}

export interface Status extends Sentence {
  also: Sentence[];
  needs: Need[];
}

export interface JobEvent {
  at: Iso;
  jobId: string;
  id: string;
  lane: string;
  tenant: string;
  priority: Priority;
  event: string;
  status: JobStatus;
  upstream?: string;
  reason?: string;
  code?: string;
}

export interface TimelineEntry {
  at: Iso;
  event: string;
  detail?: string;
  upstream?: string;
  code?: string;
  /** Of `started`: what had held the lane while the job waited. */
  waited?: { reason: Reason; since: Iso; until: Iso };
}

/** What a job sends. Hidden values are `***`. */
export interface JobRequest {
  method: string;
  path: string;
  query?: string;
  headers: Record<string, string[]>;
  body?: unknown;
}

/** A mail message, without the contents of its files and without recipients that have received it. */
export interface Message {
  to?: string[];
  cc?: string[];
  bcc?: string[];
  headers?: Record<string, string>;
  attachments?: unknown[];
}

export interface Job {
  id: string;
  jobId: string;
  lane: string;
  tenant: string;
  priority: Priority;
  type?: string;
  params?: unknown;
  request?: JobRequest;
  message?: Message;
  status: JobStatus;
  reason?: string;
  createdAt: Iso;
  expiresAt?: Iso | null;
  attempts: number;
  upstream?: string;
  externalId?: string;
  lastFailure?: { reason: string; code?: string; at: Iso; upstream?: string };
  result?: { status: number; headers: Record<string, string[]>; body: unknown };
  /** Whether it is kept as a dead letter. */
  deadLetter?: boolean;
  timeline: TimelineEntry[];
}

export interface Why extends Owner {
  status: JobStatus;
  reason: Reason | null;
  until?: Iso | null;
  detail: string;
  position: number;
  eta: Iso | null;
  willExpire: boolean;
  gates: Gate[];
}

export interface Tenant {
  companyId: string;
  lastProcessedAt?: Iso;
  roundsWithoutProcessing: number;
  currentPriority: number;
  totalProcessed: number;
  consecutiveBatchCount: number;
  queued: number;
  processing: number;
  weight: number;
  /** Whether its job is the next to start. */
  next: boolean;
}

export interface DeadLetter {
  jobId: string;
  outboxId: string;
  companyId: string;
  originalData?: unknown;
  failedAttempts: number;
  lastFailureReason: string;
  lastFailureCode?: string;
  lastFailureTimestamp: Iso | null;
  enqueuedAt: Iso | null;
  movedToDLQAt: Iso | null;
  ttl: number;
  lane: string;
  upstream?: string;
  replayedBy?: string;
  redrives: number;
  nextRedriveAt?: Iso;
}

export interface Stats {
  total: number;
  counts: Record<string, number>;
  other: number;
  /** Letters per hour of the last day, oldest first. */
  trend: { until: Iso; stepSec: number; counts: Record<string, number[]> };
}

export interface Replay {
  replayId: string;
  status: 'counting' | 'running' | 'done' | 'stopped';
  total: number;
  replayed: number;
  failed: number;
  running: number;
  remaining: number;
  startedAt: Iso;
  endedAt?: Iso | null;
  filter: Record<string, string>;
}

export interface Policy {
  name: string;
  upstream: string;
  availableTokens: number;
  capacity: number;
  refillTokens: number;
  refillPeriodSec: number;
  scope: string;
  class?: string | null;
  closedUntil?: Iso;
  spentLastMinute?: number;
  creditedLastMinute?: number;
  emptyInSec?: number;
}

export interface CodeStats {
  code: string;
  class: string;
  classifiedBy: string;
  seen: number;
  retried: number;
  cured: number;
  failedAgain: number;
  notRetried: number;
  cureShare?: number;
  proposed?: string;
}

export interface Codes {
  upstream: string;
  codes: CodeStats[];
  toml?: string;
}

export interface LanePoint {
  at: Iso;
  partial?: boolean;
  accepted: number;
  started: number;
  completed: number;
  failed: number;
  dropped: number;
  /** Null if no process was running at the end of the minute. */
  waiting: number | null;
  processing: number | null;
  waitMs: Percentiles | null;
}

export interface UpstreamPoint {
  at: Iso;
  partial?: boolean;
  calls: number;
  errors: number;
  statuses: Record<string, number>;
  latencyMs: Percentiles | null;
}

export interface Transition {
  at: Iso;
  upstream: string;
  gate: 'breaker' | 'cooldown' | 'retry_after';
  event: 'open' | 'half_open' | 'closed' | 'hot' | 'cool';
  until?: Iso | null;
}

export interface History<P> {
  stepSec: number;
  points: P[];
  transitions?: Transition[];
}

export type Role = 'producer' | 'viewer' | 'operator' | 'admin';

export interface Session {
  required: boolean;
  name?: string;
  role?: Role;
  lanes?: string[];
  tenants?: string[];
  maxPriority?: Priority;
  expiresAt?: Iso;
}
