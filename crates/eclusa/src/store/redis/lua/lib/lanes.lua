-- Lanes: their counts, their own gates, and the tenants that are known there.

local EVERYONE, group_of, upstreams_in, lane_of, pack_lane, set_of, take_seq, lane_denies, tenants_of,
  find_or_create_tenant, hold_tenant, let_go_tenant, takes_own_turn, turn_of, at_level
do
  local MAX_IDLE = 10000
  -- Whose turn all jobs take where fairness is off.
  EVERYONE = '\0'

  local KEPT = { 'paused', 'next_seq', 'arrivals', 'idle', 'levels', 'groups', 'waiting', 'waiting_bytes', 'pending',
    'processing', 'finished', 'dead', 'cached', 'cached_bytes', 'totals', 'tempo', 'gates' }

  local function new_level()
    return { turn = 0, in_a_row = 0, queued = 0, aside = 0, evictable = 0, evictable_bytes = 0, ready = {} }
  end

  local function new_lane()
    return {
      paused = false, next_seq = 1, arrivals = 0, idle = 0, levels = { new_level(), new_level(), new_level() }, groups = {},
      waiting = 0, waiting_bytes = 0, pending = 0, processing = 0, finished = 0, dead = 0, cached = 0, cached_bytes = 0,
      totals = { accepted = 0, started = 0, completed = 0, cache_hits = 0, coalesced = 0, fallbacks = 0, answered_at_intake = 0, failed = 0,
        cancelled = 0, expired = 0, preempted = 0, refused = 0, dead = 0, dead_trimmed = 0 },
      tempo = { last_grant = 0, interval_us = 0 }, gates = Gates.new(),
    }
  end

  local lanes, lane_order, chains

  at_start[#at_start + 1] = function()
    lanes, lane_order, chains = {}, {}, {}
  end

  -- Upstreams that jobs of a lane may still use form a group, numbered as they come; the first is the lane's own chain.
  function group_of(lane, chain)
    for number, known in ipairs(lane.groups) do
      if known == chain then
        return number
      end
    end
    lane.groups[#lane.groups + 1] = chain
    return #lane.groups
  end

  function upstreams_in(chain)
    local names = chains[chain]
    if not names then
      names = {}
      for name in string.gmatch(chain, '[^,]+') do
        names[#names + 1] = name
      end
      chains[chain] = names
    end
    return names
  end

  local function read_lane(name)
    local raw, known = read_ruled('lanes', name)
    if not raw and not known then
      return false
    end
    local lane = raw and recall(known, raw) or new_lane()
    lane.name, lane.known, lane.lines, lane.ready, lane.backlogs, lane.sets = name, known, {}, { {}, {}, {} }, {}, {}
    if known then
      lane.rule, lane.index = known.rule.spec, known.rule.index
      known.chain = known.chain or table.concat(lane.rule.chain, ',')
      lane.default_chain = group_of(lane, known.chain)
      Gates.fit(lane.gates, lane.rule.gates)
    end
    return lane
  end

  function lane_of(name)
    local found = lanes[name]
    if found == nil then
      found = read_lane(name)
      lanes[name] = found
      lane_order[#lane_order + 1] = found or nil
    end
    return found or nil
  end

  function pack_lane(lane)
    local kept = {}
    for _, field in ipairs(KEPT) do
      kept[field] = lane[field]
    end
    return cmsgpack.pack(kept), kept
  end

  at_end[#at_end + 1] = function()
    for _, lane in ipairs(lane_order) do
      local raw, kept = pack_lane(lane)
      redis.call('HSET', key('lanes'), lane.name, raw)
      remember(lane.known, raw, kept)
    end
  end

  -- A sorted set that a lane has once.
  function set_of(lane, what)
    local found = lane.sets[what]
    if not found then
      found = set(key(what, lane.name))
      lane.sets[what] = found
    end
    return found
  end

  function take_seq(lane)
    lane.next_seq = lane.next_seq + 1
    return lane.next_seq - 1
  end

  -- Why and until when a lane starts nothing; nothing if it does.
  function lane_denies(lane, slot_free_at)
    if lane.rule then
      return Gates.denies(lane.gates, lane.rule.gates, slot_free_at)
    end
  end

  -- Tenants.

  local function read_tenant(raw, name)
    local arrival, quota, processed, last_processed, held, high, normal, low = cmsgpack.unpack(raw)
    return { name = name, arrival = arrival, quota = quota, processed = processed, last_processed = last_processed,
      jobs = held, levels = { high or nil, normal or nil, low or nil } }
  end

  local function pack_tenant(tenant)
    local levels = tenant.levels
    return cmsgpack.pack(tenant.arrival, tenant.quota, tenant.processed, tenant.last_processed, tenant.jobs,
      levels[1], levels[2], levels[3])
  end

  function tenants_of(lane)
    local found = lane.tenants
    if not found then
      found = records(key('tenants', lane.name), read_tenant, pack_tenant)
      lane.tenants = found
    end
    return found
  end

  local function idle_tenants(lane)
    return set_of(lane, 'idle')
  end

  local function tenant_order(lane)
    return set_of(lane, 'arrivals')
  end

  local function idle_place(tenant)
    return numbered(tenant.arrival, tenant.name), tenant.last_processed or 0
  end

  function find_or_create_tenant(lane, name, quota)
    local tenants = tenants_of(lane)
    local tenant = tenants:change(name)
    if not tenant then
      tenant = { name = name, arrival = lane.arrivals, quota = quota, processed = 0, jobs = 0, levels = {} }
      lane.arrivals = lane.arrivals + 1
      tenants:put(name, tenant)
      tenant_order(lane):add(numbered(tenant.arrival, name), tenant.arrival)
      idle_tenants(lane):add(idle_place(tenant))
      lane.idle = lane.idle + 1
    end
    tenant.quota = quota
    return tenant
  end

  -- One more job of the tenant exists.
  function hold_tenant(lane, tenant)
    tenants_of(lane):change(tenant.name)
    if tenant.jobs == 0 then
      idle_tenants(lane):remove((idle_place(tenant)))
      lane.idle = lane.idle - 1
    end
    tenant.jobs = tenant.jobs + 1
  end

  local function is_current(lane, name)
    for _, level in ipairs(lane.levels) do
      if level.current == name then
        return true
      end
    end
    return false
  end

  -- Forgets idle tenants beyond the bound, but for those at whom turns point.
  local function forget_idle_tenants(lane)
    if lane.idle <= MAX_IDLE then
      return
    end
    local idle, kept = idle_tenants(lane), {}
    for _ = 1, MAX_BATCH do
      local member, score = idle:first()
      if not member or lane.idle <= MAX_IDLE then
        break
      end
      idle:remove(member)
      local name = string.sub(member, 9)
      if is_current(lane, name) then
        kept[#kept + 1] = { member, score }
      else
        tenants_of(lane):remove(name)
        tenant_order(lane):remove(member)
        lane.idle = lane.idle - 1
      end
    end
    for _, entry in ipairs(kept) do
      idle:add(entry[1], entry[2])
    end
  end

  -- One job less of the tenant exists.
  function let_go_tenant(lane, name)
    local tenant = tenants_of(lane):change(name)
    tenant.jobs = tenant.jobs - 1
    if tenant.jobs == 0 then
      idle_tenants(lane):add(idle_place(tenant))
      lane.idle = lane.idle + 1
      forget_idle_tenants(lane)
    end
  end

  function takes_own_turn(lane)
    return not lane.rule or lane.rule.fairness ~= nil
  end

  -- The tenant whose turn a waiting job takes: its own, or everybody's if fairness was off when it began to wait.
  function turn_of(lane, job)
    if not job.shared then
      return tenants_of(lane):change(job.tenant)
    end
    local everyone = tenants_of(lane):change(EVERYONE)
    if not everyone then
      everyone = find_or_create_tenant(lane, EVERYONE, 1)
      hold_tenant(lane, everyone)
    end
    return everyone
  end

  function at_level(tenant, level)
    local state = tenant.levels[level]
    if not state then
      state = { lines = 0, evictable = 0, open = {} }
      tenant.levels[level] = state
    end
    return state
  end
end
