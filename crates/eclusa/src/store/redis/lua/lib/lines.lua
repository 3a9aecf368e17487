-- Lines, the FIFO units of a lane, and turns: which tenant of a level is served next.
--
-- Jobs of one level and tenant that need the same upstreams (group) and the same scoped buckets (holds) are a line, in the
-- order of their numbers. A tenant stands ready in a group while it has an open line there, at its place: the turn it was
-- last served in, but at most four rounds back, then the number of the job that made it wait.

local unpark_line, line_id, line_of, jobs_in, stands_of, stand_of, rank_of, move_head, push, pull, line_length,
  choose, serve_turn
do
  local SATURATED = 4

  function line_id(level, group, tenant, holds)
    return level .. ':' .. group .. ':' .. #tenant .. ':' .. tenant .. (holds or '')
  end

  function line_of(id)
    local level, group, size, at = string.match(id, '^(%d):(%d+):(%d+):()')
    local rest = at + tonumber(size)
    local holds = string.sub(id, rest)
    return { id = id, level = tonumber(level), group = tonumber(group), tenant = string.sub(id, at, rest - 1),
      holds = holds ~= '' and holds or nil }
  end

  function jobs_in(lane, id)
    return set(key('line', lane.name, id))
  end

  local function open_lines(lane, level, group, tenant)
    return set(key('open', lane.name, level, group, tenant))
  end

  local function ready_in(lane, level, group)
    return set(key('ready', lane.name, level, group))
  end

  -- Lines that wait for a scoped bucket, or did since they were last served.
  local function read_stand(raw)
    local ticket, bucket, hold, look_at = cmsgpack.unpack(raw)
    return { ticket = ticket, bucket = bucket, hold = hold, look_at = look_at }
  end

  local function pack_stand(stand)
    return cmsgpack.pack(stand.ticket, stand.bucket, stand.hold, stand.look_at)
  end

  function stands_of(lane)
    return records(key('stands', lane.name), read_stand, pack_stand)
  end

  function stand_of(lane, line)
    return line.holds and stands_of(lane):get(line.id) or nil
  end

  local function is_parked(lane, line)
    local stand = stand_of(lane, line)
    return stand ~= nil and stand.bucket ~= nil
  end

  -- Who comes first at a bucket: the most urgent, then who drew the lowest ticket.
  function rank_of(lane, line)
    local stand = stand_of(lane, line)
    return line.level * 2 ^ 48 + (stand and stand.ticket or 2 ^ 48 - 1)
  end

  -- Keeps the order of lines and tenants right after the head of `line` changed.
  function move_head(lane, line, was_open)
    local tenant = tenants_of(lane):change(line.tenant)
    local state = at_level(tenant, line.level)
    local opens = open_lines(lane, line.level, line.group, line.tenant)
    local _, head = jobs_in(lane, line.id):first()
    local is_open = head ~= nil and not is_parked(lane, line)
    if is_open then
      opens:add(line.id, head)
    elseif was_open then
      opens:remove(line.id)
    end
    local before = state.open[line.group] or 0
    local now_open = before + (is_open and 1 or 0) - (was_open and 1 or 0)
    state.open[line.group] = now_open > 0 and now_open or nil
    if (before > 0) ~= (now_open > 0) then
      local standing = lane.levels[line.level].ready
      standing[line.group] = (standing[line.group] or 0) + (now_open > 0 and 1 or -1)
      local ready, member = ready_in(lane, line.level, line.group), numbered(state.seq, line.tenant)
      if now_open > 0 then
        ready:add(member, state.turn)
      else
        ready:remove(member)
      end
    end
  end

  -- A tenant without lines in a level gets its place there with its first.
  local function begin_line(lane, line, seq)
    local state = at_level(tenants_of(lane):change(line.tenant), line.level)
    state.lines = state.lines + 1
    if not state.turn then
      local turn = lane.levels[line.level].turn - SATURATED
      state.turn, state.seq = max(state.last_turn or turn, turn), seq
    end
  end

  local function end_line(lane, line)
    local state = at_level(tenants_of(lane):change(line.tenant), line.level)
    state.lines = state.lines - 1
    if state.lines == 0 then
      state.turn, state.seq = nil, nil
    end
  end

  function push(lane, line, job)
    local level = lane.levels[line.level]
    level.queued = level.queued + 1
    local waiting = jobs_in(lane, line.id)
    local _, head = waiting:first()
    if not head then
      begin_line(lane, line, job.seq)
    end
    waiting:add(job.id, job.seq)
    waiting.length = waiting.length and waiting.length + 1
    if not head or job.seq < head then
      move_head(lane, line, head ~= nil and not is_parked(lane, line))
    end
  end

  -- Takes a job out of its line. The line goes with its last job, its place at a bucket too.
  function pull(lane, line, job)
    local level = lane.levels[line.level]
    level.queued = level.queued - 1
    local waiting = jobs_in(lane, line.id)
    local first = waiting:first()
    waiting:remove(job.id)
    waiting.length = waiting.length and waiting.length - 1
    local parked = is_parked(lane, line)
    if first == job.id then
      move_head(lane, line, not parked)
    end
    if waiting:first() then
      return
    end
    if parked then
      unpark_line(lane, line)
    end
    if stand_of(lane, line) then
      stands_of(lane):remove(line.id)
    end
    end_line(lane, line)
  end

  -- How many jobs stand in a line.
  function line_length(lane, line)
    local waiting = jobs_in(lane, line.id)
    waiting.length = waiting.length or waiting:count()
    return waiting.length
  end

  -- The line of `tenant` with the oldest head among groups that are not blocked.
  local function first_line(lane, level, tenant, blocked)
    local oldest, best = nil, nil
    for group in pairs(at_level(tenant, level).open) do
      if not blocked[group] then
        local id, head = open_lines(lane, level, group, tenant.name):first()
        if id and (not oldest or head < oldest) then
          oldest, best = head, id
        end
      end
    end
    return best and line_of(best)
  end

  -- The line to serve next.
  function choose(lane, level, blocked)
    local turns, fairness = lane.levels[level], lane.rule.fairness
    local current = fairness and turns.current and tenants_of(lane):get(turns.current)
    if current and turns.in_a_row < current.quota then
      local line = first_line(lane, level, current, blocked)
      if line then
        return line
      end
    end
    local first, first_turn = nil, nil
    for group = 1, #lane.groups do
      if not blocked[group] then
        local member, turn = ready_in(lane, level, group):first()
        if member and (not first or turn < first_turn or (turn == first_turn and number_in(member) < number_in(first))) then
          first, first_turn = member, turn
        end
      end
    end
    local tenant = first and tenants_of(lane):get(string.sub(first, 9))
    return tenant and first_line(lane, level, tenant, blocked)
  end

  -- Counts a job served to the tenant of a line.
  function serve_turn(lane, line)
    local turns = lane.levels[line.level]
    if turns.current == line.tenant then
      turns.in_a_row = turns.in_a_row + 1
      return
    end
    turns.turn, turns.current, turns.in_a_row = turns.turn + 1, line.tenant, 1
    local state = at_level(tenants_of(lane):change(line.tenant), line.level)
    state.last_turn = turns.turn
    if state.turn then
      state.turn = turns.turn
      for group in pairs(state.open) do
        ready_in(lane, line.level, group):add(numbered(state.seq, line.tenant), state.turn)
      end
    end
  end
end
