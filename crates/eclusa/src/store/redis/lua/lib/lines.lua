-- Lines, the FIFO units of a lane, and turns: which tenant of a level is served next.
--
-- Jobs of one level and tenant that need the same upstreams (group) and the same scoped buckets (holds) are a line, in the
-- order of their numbers. A line without holds is never parked: it is open while it has jobs, and only the open lines with
-- holds are kept in a set. A tenant stands ready in a group while it has an open line there, at its place: the turn it was
-- last served in, but at most four rounds back, then the number of the job that made it wait.

local unpark_line, line_for, line_of, jobs_in, stands_of, stand_of, rank_of, move_head, push, pull, line_length,
  choose, serve_turn, heads_of
do
  local SATURATED = 4

  local lines, plain_lines, opened, words

  at_start[#at_start + 1] = function()
    lines, plain_lines, opened, words = {}, {}, {}, {}
  end

  -- Numbers are slow to write, and these are few.
  local function word(number)
    local written = words[number]
    if not written then
      written = whole(number) .. ':'
      words[number] = written
    end
    return written
  end

  local function new_line(level, group, tenant, holds)
    local id = word(level) .. word(group) .. word(#tenant) .. tenant .. (holds or '')
    local line = lines[id]
    if not line then
      line = { id = id, level = level, group = group, tenant = tenant, holds = holds }
      lines[id] = line
    end
    return line
  end

  -- The line of a level, group and tenant whose jobs have these holds.
  function line_for(level, group, tenant, holds)
    if holds then
      return new_line(level, group, tenant, holds)
    end
    local known = plain_lines[tenant]
    if not known then
      known = {}
      plain_lines[tenant] = known
    end
    local place = group * 4 + level
    local line = known[place]
    if not line then
      line = new_line(level, group, tenant)
      known[place] = line
    end
    return line
  end

  function line_of(id)
    local line = lines[id]
    if line then
      return line
    end
    local level, group, size, at = string.match(id, '^(%d):(%d+):(%d+):()')
    local rest = at + tonumber(size)
    local holds = string.sub(id, rest)
    line = { id = id, level = tonumber(level), group = tonumber(group), tenant = string.sub(id, at, rest - 1),
      holds = holds ~= '' and holds or nil }
    lines[id] = line
    return line
  end

  function jobs_in(lane, id)
    local found = lane.lines[id]
    if not found then
      found = set(key('line', lane.name, id))
      lane.lines[id] = found
    end
    return found
  end

  -- Open lines with holds of a tenant that stands so in a level, by group.
  local function open_lines(lane, level, group, tenant)
    local state = at_level(tenant, level)
    local known = opened[state]
    if not known then
      known = {}
      opened[state] = known
    end
    local found = known[group]
    if not found then
      found = set(key('open', lane.name, level, group, tenant.name))
      known[group] = found
    end
    return found
  end

  local function ready_in(lane, level, group)
    local known = lane.ready[level]
    local found = known[group]
    if not found then
      found = set(key('ready', lane.name, level, group))
      found:expect(lane.expected or 1)
      known[group] = found
    end
    return found
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
    if not line.holds then
      return false
    end
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
    local _, head = jobs_in(lane, line.id):first()
    local is_open = head ~= nil and not is_parked(lane, line)
    if line.holds then
      local opens = open_lines(lane, line.level, line.group, tenant)
      if is_open then
        opens:add(line.id, head)
      elseif was_open then
        opens:remove(line.id)
      end
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
    if line.holds then
      state.held = (state.held or 0) + 1
    end
    if not state.turn then
      local turn = lane.levels[line.level].turn - SATURATED
      state.turn, state.seq = max(state.last_turn or turn, turn), seq
    end
  end

  local function end_line(lane, line)
    local state = at_level(tenants_of(lane):change(line.tenant), line.level)
    state.lines = state.lines - 1
    if line.holds then
      state.held = state.held > 1 and state.held - 1 or nil
    end
    if state.lines == 0 then
      state.turn, state.seq = nil, nil
    end
  end

  -- How many jobs stand in a line.
  function line_length(lane, line)
    local waiting = jobs_in(lane, line.id)
    waiting.length = waiting.length or waiting:count()
    return waiting.length
  end

  function push(lane, line, job)
    local level = lane.levels[line.level]
    level.queued = level.queued + 1
    local waiting = jobs_in(lane, line.id)
    local empty, becomes_head
    if job.seq + 1 == lane.next_seq then
      -- Nobody came after it.
      empty = line_length(lane, line) == 0
      becomes_head = empty
    else
      local _, head = waiting:first()
      empty = head == nil
      becomes_head = empty or job.seq < head
    end
    if empty then
      begin_line(lane, line, job.seq)
    end
    waiting:add(job.id, job.seq)
    waiting.length = waiting.length and waiting.length + 1
    if becomes_head then
      move_head(lane, line, not empty and not is_parked(lane, line))
    end
  end

  -- Takes a job out of its line. The line goes with its last job, its place at a bucket too.
  function pull(lane, line, job)
    local level = lane.levels[line.level]
    level.queued = level.queued - 1
    local waiting = jobs_in(lane, line.id)
    -- A line without holds stays open while it has jobs, whatever its head.
    local was_first = line.holds and waiting:first() == job.id
    waiting:remove(job.id)
    waiting.length = waiting.length and waiting.length - 1
    local first, parked = waiting:first(), is_parked(lane, line)
    if was_first or not first then
      move_head(lane, line, not parked)
    end
    if first then
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

  -- The line of `tenant` with the oldest head among groups that are not blocked.
  local function first_line(lane, level, tenant, blocked)
    local oldest, best = nil, nil
    local state = at_level(tenant, level)
    for group in pairs(state.open) do
      if not blocked[group] then
        local plain = line_for(level, group, tenant.name).id
        local waiting = jobs_in(lane, plain)
        if not waiting.window then
          local alone = lane.levels[level].ready[group] == 1
          waiting:expect((alone and lane.expected or min(tenant.quota, lane.expected or 1)) + 1)
        end
        local _, head = waiting:first()
        if head and (not oldest or head < oldest) then
          oldest, best = head, plain
        end
        if state.held then
          local id, held_head = open_lines(lane, level, group, tenant):first()
          if id and (not oldest or held_head < oldest) then
            oldest, best = held_head, id
          end
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

  -- At most `count` jobs that will probably be served from `line` on: its own, then those of the tenants after it.
  function heads_of(lane, line, count)
    local level, group = line.level, line.group
    local fair = lane.rule.fairness and lane.levels[level].ready[group] ~= 1
    local heads = jobs_in(lane, line.id):ahead(fair and min(tenants_of(lane):get(line.tenant).quota, count) or count)
    if not fair then
      return heads
    end
    local names = ready_in(lane, level, group):ahead(count - #heads)
    for i, member in ipairs(names) do
      names[i] = string.sub(member, 9)
    end
    tenants_of(lane):fetch(names)
    for _, name in ipairs(names) do
      if #heads >= count then
        break
      end
      local tenant = name ~= line.tenant and tenants_of(lane):get(name)
      if tenant then
        local waiting = jobs_in(lane, line_for(level, group, name).id)
        waiting:expect(min(tenant.quota, count - #heads) + 1)
        waiting:first()
        for _, id in ipairs(waiting:ahead(min(tenant.quota, count - #heads))) do
          heads[#heads + 1] = id
        end
      end
    end
    return heads
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
