-- Answers that are given again, and equal requests of which one is sent.
--
-- If jobs are set aside for a key, then one of that key is processing, stands in a line, or has just succeeded.

local end_with, owed, cache_rule, entry_of, oldest_answer, fresh_until, usable_until, usable_answer, all_open,
  begin_processing, stop_processing, leader_of, set_aside, give_way, give_way_after, store_answer, serve_owed,
  serve_fresh, serve_covered, surplus_answer, forget_answers
do
  local IN_LINE, ASIDE, BACKOFF, RUNNING = 0, 1, 2, 3

  -- Orders by kind, then by number.
  local function score_of(kind, number)
    return kind * 2 ^ 44 + number
  end

  -- Jobs under one key: waiting ones by where they wait, level and number; those that run last.
  local function equals_of(lane, cache_key)
    return set(key('equals', lane.name, cache_key))
  end

  -- Waiting jobs whose key had an answer when they began to wait, by chain and number.
  local function covered_jobs(lane)
    return set_of(lane, 'covered')
  end

  -- Keys whose waiting jobs are owed an answer that was just stored, by the answer's number.
  owed = basin_set('owed')

  local function cached_answers(lane)
    return set_of(lane, 'cached')
  end

  function cache_rule(lane)
    return lane.rule and lane.rule.cache
  end

  local entries, entry_order

  at_start[#at_start + 1] = function()
    entries, entry_order = {}, {}
  end

  local function entry_key(lane, cache_key)
    return GATES .. 'cache:' .. lane.name .. ':' .. cache_key
  end

  -- The answer under a key, where the lane has a cache: { number, stored_at, answer }.
  function entry_of(lane, cache_key)
    if not cache_rule(lane) then
      return nil
    end
    local name = entry_key(lane, cache_key)
    if entries[name] == nil then
      local raw = redis.call('GET', name)
      local entry = false
      if raw then
        entry = {}
        entry.number, entry.stored_at, entry.answer = cmsgpack.unpack(raw)
      end
      entries[name] = entry
    end
    return entries[name] or nil
  end

  local DAY = 86400000

  -- It outlives its use by a day, for those who count: normally a sweep removes it before.
  local function put_entry(lane, cache_key, entry)
    local name = entry_key(lane, cache_key)
    entries[name] = entry
    local lives = lane.rule.cache.ttl + lane.rule.cache.stale_if_error + DAY
    entry_order[#entry_order + 1] = function()
      if entries[name] == entry then
        redis.call('SET', name, cmsgpack.pack(entry.number, entry.stored_at, entry.answer), 'PX', min(lives, NEVER))
      end
    end
  end

  local function drop_entry(lane, cache_key)
    local name = entry_key(lane, cache_key)
    entries[name] = false
    entry_order[#entry_order + 1] = function()
      if not entries[name] then
        redis.call('DEL', name)
      end
    end
  end

  at_end[#at_end + 1] = function()
    for _, write in ipairs(entry_order) do
      write()
    end
  end

  local function forget_answer(lane, cache_key, entry)
    lane.cached = lane.cached - 1
    lane.cached_bytes = lane.cached_bytes - #cache_key - #entry.answer
    cached_answers(lane):remove(numbered(entry.number, cache_key))
    drop_entry(lane, cache_key)
  end

  local function is_over(lane, rule)
    return lane.cached > rule.max or lane.cached_bytes > rule.max_bytes
  end

  -- The oldest answer of a lane: its key, itself, and the member that stands for it.
  function oldest_answer(lane)
    local member = cached_answers(lane):first()
    if not member then
      lane.cached, lane.cached_bytes = 0, 0
      return nil
    end
    local cache_key = string.sub(member, 9)
    local raw = entries[entry_key(lane, cache_key)]
    local entry = raw or entry_of(lane, cache_key)
    if not entry or entry.number ~= number_in(member) then
      cached_answers(lane):remove(member)
      return oldest_answer(lane)
    end
    return cache_key, entry
  end

  -- Stores an answer in the place of an older one and lets others go until it fits. Says whether it was stored.
  local function store_entry(lane, cache_key, answer, number)
    local rule = lane.rule.cache
    if #cache_key + #answer > rule.max_bytes then
      return false
    end
    local old = entry_of(lane, cache_key)
    if old then
      forget_answer(lane, cache_key, old)
    end
    put_entry(lane, cache_key, { number = number, stored_at = now, answer = answer })
    cached_answers(lane):add(numbered(number, cache_key), number)
    lane.cached = lane.cached + 1
    lane.cached_bytes = lane.cached_bytes + #cache_key + #answer
    while is_over(lane, rule) do
      local oldest, entry = oldest_answer(lane)
      if not oldest then
        break
      end
      forget_answer(lane, oldest, entry)
    end
    return true
  end

  function fresh_until(rule, entry)
    return after(entry.stored_at, rule.ttl)
  end

  function usable_until(rule, entry)
    return after(fresh_until(rule, entry), rule.stale_if_error)
  end

  local function fresh_answer(lane, job)
    local entry = job.cache_key and entry_of(lane, job.cache_key)
    if entry and now < fresh_until(lane.rule.cache, entry) then
      return entry.answer
    end
  end

  function usable_answer(lane, job)
    local entry = job.cache_key and entry_of(lane, job.cache_key)
    if entry and now < usable_until(lane.rule.cache, entry) then
      return entry.answer
    end
  end

  -- Whether every breaker of a chain is open and not yet ready for a probe.
  function all_open(lane, group)
    for _, name in ipairs(upstreams_in(lane.groups[group])) do
      local upstream = upstream_of(name)
      local guarded = upstream and upstream.rule and upstream.rule.breaker
      if not guarded or not Breaker.is_open(upstream.gates.breaker) then
        return false
      end
    end
    return true
  end

  local function owed_score(lane, number)
    return score_of(lane.index or 0, number)
  end

  local function owe(lane, cache_key, number)
    owed:add(numbered(number, lane.name .. '\n' .. cache_key), owed_score(lane, number))
  end

  -- Where a waiting job stands if an answer to an equal request may end it.
  local function stand_among_equals(job)
    if job.phase == QUEUED then
      return IN_LINE
    elseif job.phase == COALESCED then
      return ASIDE
    elseif job.phase == PENDING and job.attempts > 0 then
      return BACKOFF
    end
  end

  function join_equals(lane, job)
    local stand = job.cache_key and stand_among_equals(job)
    if not stand then
      return
    end
    equals_of(lane, job.cache_key):add(job.id, score_of(stand * 3 + job.level, job.seq))
    local entry = entry_of(lane, job.cache_key)
    if entry then
      covered_jobs(lane):add(job.id, score_of(job.chain, job.seq))
      if job.seq < entry.number then
        owe(lane, job.cache_key, entry.number)
      end
    end
  end

  function leave_equals(lane, job)
    if job.cache_key and stand_among_equals(job) then
      equals_of(lane, job.cache_key):remove(job.id)
      covered_jobs(lane):remove(job.id)
    end
  end

  function begin_processing(lane, job)
    lane.processing = lane.processing + 1
    if job.cache_key then
      equals_of(lane, job.cache_key):add(job.id, score_of(RUNNING * 3 + 1, number_in(job.lease)))
    end
  end

  function stop_processing(lane, job)
    lane.processing = lane.processing - 1
    if job.cache_key then
      equals_of(lane, job.cache_key):remove(job.id)
    end
  end

  -- The job whose answer the others under a key wait for.
  local function leader(lane, cache_key)
    return (equals_of(lane, cache_key):first_between(score_of(RUNNING * 3 + 1, 0), score_of(RUNNING * 3 + 2, 0)))
  end

  function leader_of(lane, job)
    if job.cache_key and cache_rule(lane) then
      return leader(lane, job.cache_key)
    end
  end

  -- Whether a job other than number `except` stands in a line.
  local function is_in_line(lane, cache_key, except)
    local equals = equals_of(lane, cache_key)
    local from = 0
    for _ = 1, 2 do
      local id, score = equals:first_between(from, score_of(ASIDE * 3 + 1, 0))
      if not id then
        return false
      end
      if score % 2 ^ 44 ~= except then
        return true
      end
      from = score + 1
    end
    return false
  end

  local function first_aside(lane, cache_key)
    local id = equals_of(lane, cache_key):first_between(score_of(ASIDE * 3 + 1, 0), score_of(BACKOFF * 3 + 1, 0))
    return id and jobs:get(id)
  end

  -- The first waiting job with a number below `number`, by level, then number, wherever it waits.
  local function first_before(lane, cache_key, number)
    local equals = equals_of(lane, cache_key)
    for level = HIGH, LOW do
      local first, first_seq = nil, nil
      for stand = IN_LINE, BACKOFF do
        local kind = stand * 3 + level
        local id, score = equals:first_between(score_of(kind, 0), score_of(kind, number))
        local seq = id and score - score_of(kind, 0)
        if id and (not first or seq < first_seq) then
          first, first_seq = id, seq
        end
      end
      if first then
        return jobs:get(first)
      end
    end
  end

  -- Takes a job out of its line while an equal one is processing.
  function set_aside(lane, job)
    jobs:change(job.id)
    leave_equals(lane, job)
    pull(lane, line_of_job(lane, job), job)
    if job.attempts == 0 and not job.odd then
      set_odd(lane, job, turn_of(lane, job))
    end
    job.phase = COALESCED
    local level = lane.levels[job.level]
    level.aside = level.aside + 1
    join_equals(lane, job)
  end

  -- Puts a job that was set aside back into its own line, at its own place.
  local function promote(lane, job)
    jobs:change(job.id)
    leave_equals(lane, job)
    local level = lane.levels[job.level]
    level.aside = level.aside - 1
    stand_in_line(lane, job)
    join_equals(lane, job)
  end

  -- Lets the first of those set aside go on where no job of their key will bring an answer: none but number `failed`, which
  -- has just tried in vain, is processing or in a line, and none has just succeeded.
  function give_way(lane, cache_key, failed)
    local job = first_aside(lane, cache_key)
    if not job or leader(lane, cache_key) or is_in_line(lane, cache_key, failed) then
      return
    end
    local entry = entry_of(lane, cache_key)
    local score = entry and owed_score(lane, entry.number)
    if not score or not owed:first_between(score, score + 1) then
      promote(lane, job)
    end
  end

  -- A job stopped processing without success and waits again.
  function give_way_after(lane, job)
    if job.cache_key then
      give_way(lane, job.cache_key, job.seq)
    end
  end

  -- Keeps the answer of a call that succeeded; those that wait for an equal one are owed it.
  function store_answer(lane, job, answer)
    if not job.cache_key or not answer or not cache_rule(lane) then
      return
    end
    local number = take_seq(lane)
    if store_entry(lane, job.cache_key, answer, number) and first_before(lane, job.cache_key, number) then
      owe(lane, job.cache_key, number)
    end
  end

  -- Ends jobs that waited when an equal one succeeded, as many as `budget` allows. Owed is what was stored then, however
  -- long ago, unless it had to go.
  function serve_owed(budget)
    while budget.left > 0 do
      local member, score = owed:first()
      if not member then
        return
      end
      local name, cache_key = string.match(string.sub(member, 9), '^([^\n]*)\n(.*)$')
      local lane, number = lane_of(name), score % 2 ^ 44
      local entry = entry_of(lane, cache_key)
      local job = entry and entry.number == number and first_before(lane, cache_key, number)
      if job then
        end_with(lane, job, entry.answer, 'coalesced')
        budget.left = budget.left - 1
      else
        owed:remove(member)
        give_way(lane, cache_key, nil)
      end
    end
  end

  -- Ends a waiting job that may start with a fresh answer instead; says whether it did.
  function serve_fresh(lane, job)
    local answer = fresh_answer(lane, job)
    if answer then
      end_with(lane, job, answer, 'cache')
    end
    return answer ~= nil
  end

  -- Ends waiting jobs that have an answer, however old, and no upstream that could give a newer one. Says whether there are
  -- more than `budget` allows.
  function serve_covered(lane, budget)
    if not cache_rule(lane) then
      return false
    end
    local from, looks = 0, 0
    while true do
      local id, score = covered_jobs(lane):first_between(from, NEVER)
      if not id then
        return false
      end
      local group = floor(score / 2 ^ 44)
      if not all_open(lane, group) then
        from = score_of(group + 1, 0)
      elseif budget.left == 0 or looks == MAX_LOOKS then
        return true
      else
        looks, from = looks + 1, score + 1
        local job = jobs:get(id)
        local fresh, usable = fresh_answer(lane, job), usable_answer(lane, job)
        if usable then
          end_with(lane, job, usable, fresh and 'cache' or 'breaker_aberto')
          budget.left = budget.left - 1
        else
          covered_jobs(lane):remove(id)
        end
      end
    end
  end

  -- Forgets answers that are of no more use, or more than the lane keeps.
  function surplus_answer(lane)
    local rule = cache_rule(lane)
    if not rule then
      return nil
    end
    local cache_key, entry = oldest_answer(lane)
    if cache_key and (now >= usable_until(rule, entry) or is_over(lane, rule)) then
      return cache_key, entry
    end
  end

  function forget_answers(lane)
    for _ = 1, MAX_BATCH do
      local cache_key, entry = surplus_answer(lane)
      if not cache_key then
        return
      end
      forget_answer(lane, cache_key, entry)
    end
  end
end
