-- sweep: what time does by itself. Each step is bounded; a sweep that did not finish says "again at once".
--   KEYS[1], ARGV[1..3]: see lib/base.lua; ARGV[4]: lanes
--   returns: { ended, taken_up, dead_letters = { { lane, job, surplus } }, now, next }

-- Of one call.
local next_at, gone

local function wake(at)
  next_at = min(next_at, at or NEVER)
end

-- The oldest letter if it is past its time or over the cap.
local function surplus_letter(lane)
  local member = letter_order(lane):first()
  if not member then
    return nil
  end
  local moved, ttl = struct.unpack('>I8I8', member)
  local rule = lane.rule and lane.rule.dead_letters
  if after(moved, ttl) <= now then
    return string.sub(member, 17), 'expired'
  elseif rule and lane.dead > rule.max then
    return string.sub(member, 17), 'over_cap'
  end
end

local function trim_dead(lane)
  for _ = 1, MAX_BATCH do
    local id, surplus = surplus_letter(lane)
    if not id then
      return
    end
    remove_letter(lane, id)
    if surplus == 'over_cap' then
      lane.totals.dead_trimmed = lane.totals.dead_trimmed + 1
    end
    gone[#gone + 1] = { lane = lane.name, job = id, surplus = surplus }
  end
end

local function next_forgetting(lane)
  if surplus_letter(lane) or surplus_answer(lane) then
    return now
  end
  local keep = lane.rule and lane.rule.keep.span or 600000
  local finished = lane.finished > 0 and finished_jobs(lane):first()
  local letter = letter_order(lane):first()
  local rule = cache_rule(lane)
  local answer, entry = nil, nil
  if rule then
    answer, entry = oldest_answer(lane)
  end
  local next_letter = NEVER
  if letter then
    local moved, ttl = struct.unpack('>I8I8', letter)
    next_letter = after(moved, ttl)
  end
  return min(finished and after(number_in(finished), keep) or NEVER, next_letter, next_key_end(lane),
    answer and usable_until(rule, entry) or NEVER)
end

function verbs.sweep(question)
  next_at, gone = NEVER, {}
  local budget = { left = MAX_BATCH }
  local taken_up = take_up_lost()
  serve_owed(budget)
  for _, name in ipairs(cmsgpack.unpack(question)) do
    local lane = lane_of(name)
    if lane then
      release_due(lane)
      drop_expired(lane)
      if not lane.paused and serve_covered(lane, budget) then
        wake(now)
      end
      trim_finished(lane)
      trim_dead(lane)
      forget_keys(lane)
      forget_answers(lane)
      wake(next_event(lane))
      wake(next_forgetting(lane))
    end
  end
  for _ = 1, MAX_BATCH do
    if not forget_idle_bucket() then
      break
    end
  end
  local _, forget_at = idle_buckets:first()
  wake(forget_at)
  if owed:first() then
    wake(now)
  end

  write_all()
  keep_clock()
  publish_ended()
  return cmsgpack.pack({ ended = ended, taken_up = taken_up, dead_letters = gone, now = now, next = next_at })
end
