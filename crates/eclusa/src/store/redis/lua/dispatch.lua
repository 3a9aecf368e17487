-- dispatch: which jobs may start now, and where.
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: lane, max, lease (ms), nonce
--   returns: { grants, ended, taken_up, denied?, now, next }
--
-- Levels are served in order. Within a level the right tenant's oldest line is offered to the first upstream of its chain
-- whose gates admit it. A group of lines that no upstream admits is passed over whole. A line denied only by its own scoped
-- bucket is parked there, and others pass it; but lines that come after it take nothing from there.

-- A parked line that has other upstreams to go to looks at them again after this long.
local PARKED_WITH_CHOICE = 1000

-- Of one call.
local lane, most, lease_ms, nonce, budget, grants, next_at, denied, looks

local function wake(at)
  next_at = min(next_at, at)
end

-- What holds back the most urgent job that cannot start: a gate of this upstream, or of the lane.
local function deny(upstream, reason, until_when)
  wake(until_when)
  denied = denied or { upstream = upstream, reason = reason }
end

-- Says where the head of a line may go; else it is parked or its group blocked.
local function offer(line, blocked)
  local chain = upstreams_in(lane.groups[line.group])
  local rank = line.holds and rank_of(lane, line)
  local at, why, earliest = nil, 'no_worker', NEVER
  local scoped, scoped_until = nil, NEVER
  for _, name in ipairs(chain) do
    local reason, until_when = upstream_denies(name, next_lease_end)
    if not reason then
      local hold, _, hold_until = denied_hold(line.holds, name, rank)
      if not hold then
        return name
      end
      if not scoped or hold_until < scoped_until then
        scoped, scoped_until = hold, hold_until
      end
    elseif until_when <= earliest then
      at, why, earliest = name, reason, until_when
    end
  end
  if not scoped then
    blocked[line.group] = true
    deny(at, why, earliest)
    return nil
  end
  local until_when = min(scoped_until, earliest)
  if #chain > 1 then
    until_when = min(until_when, now + PARKED_WITH_CHOICE)
  end
  park(lane, line, scoped, until_when)
  deny(scoped.upstream, 'rate_limit', until_when)
end

local function count_grant(job)
  local tenant = tenants_of(lane):change(job.tenant)
  tenant.processed, tenant.last_processed = tenant.processed + 1, now
  lane.totals.started = lane.totals.started + 1
  local tempo = lane.tempo
  if tempo.last_grant > 0 then
    local sample = min(max(now - tempo.last_grant, 0), 60000) * 1000
    tempo.interval_us = floor((tempo.interval_us * 15 + sample) / 16)
  end
  tempo.last_grant = now
end

-- Starts a job: takes from every gate at once and hands out the lease.
local function start(line, job, upstream)
  if line.holds and stands_of(lane):get(line.id) then
    stands_of(lane):remove(line.id)
  end
  stop_waiting(lane, job)
  local expires = after(now, lease_ms)
  job.lease = issue_lease(nonce)
  serve_turn(lane, line)
  count_grant(job)
  begin_processing(lane, job)
  take_lane(lane, job.lease, expires)
  enter_upstream(job, job.lease, lane.name, upstream, expires)
  job.phase, job.at = PROCESSING, nil
  if job.tried == 0 then
    job.attempts = job.attempts + 1
  end
  grants[#grants + 1] = { lease = job.lease, lease_expires = expires, job = job.id, tenant = job.tenant, level = job.level,
    payload = payload_of(job), upstream = upstream, attempt = job.attempts, expires = job.expires }
end

-- Reads at once the jobs that will probably be served next, from the head of a line on.
local function fetch_heads(line, id)
  if not jobs:is_known(id) then
    jobs:fetch(heads_of(lane, line, min(most, MAX_BATCH) - #grants))
  end
end

-- Starts the head of a line, unless it came too late, is answered already or will be by an equal one.
local function take_head(line, upstream)
  local id = jobs_in(lane, line.id):first()
  fetch_heads(line, id)
  local job = jobs:get(id)
  if is_expired(job) then
    drop_job(lane, job, 'ttl_expired')
  elseif serve_fresh(lane, job) then
    budget.left = budget.left - 1
  elseif leader_of(lane, job) then
    set_aside(lane, job)
  else
    start(line, job, upstream)
  end
end

local function fill_level(level)
  local blocked = {}
  while true do
    local line = choose(lane, level, blocked)
    if not line then
      return true
    end
    if #grants >= min(most, MAX_BATCH) or looks >= MAX_LOOKS or budget.left == 0 then
      wake(now)
      return false
    end
    local reason, until_when = lane_denies(lane, next_lease_end)
    if reason then
      deny(nil, reason, until_when)
      return false
    end
    looks = looks + 1
    local upstream = offer(line, blocked)
    if upstream then
      take_head(line, upstream)
    end
  end
end

function verbs.dispatch(question)
  local lane_name
  lane_name, most, lease_ms, nonce = cmsgpack.unpack(question)
  budget, grants, next_at, denied, looks = { left = MAX_BATCH }, {}, NEVER, nil, 0
  local taken_up = take_up_lost()
  wake_parked()
  serve_owed(budget)

  lane = lane_name and lane_of(lane_name)
  if lane_name and not (lane and lane.rule) then
    return redis.error_reply('NORULES ' .. lane_name)
  end
  if lane then
    lane.expected = most
    release_due(lane)
    drop_expired(lane)
    if not lane.paused then
      if serve_covered(lane, budget) then
        wake(now)
      end
      for level = HIGH, LOW do
        if not fill_level(level) then
          break
        end
      end
    end
    wake(next_event(lane))
    wake(next_wake())
  end
  if owed:first() then
    next_at = now
  end

  write_all()
  keep_clock()
  publish_ended()
  return cmsgpack.pack({ grants = grants, ended = ended, taken_up = taken_up, denied = denied, now = now, next = next_at })
end
