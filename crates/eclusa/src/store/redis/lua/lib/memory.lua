-- What stays from call to call: names, rules, and what the state of lanes and upstreams was when it was last written. Rules
-- are named after what they say, and a state is used only where Redis still holds the same bytes, so nothing here can be
-- out of date.

local key, read_ruled, recall, remember
do
  local MAX_BASINS = 100
  local basins, count = {}, 0
  local memory

  at_start[#at_start + 1] = function()
    local name = BASIN .. '\n' .. RULES
    memory = basins[name]
    if not memory then
      if count == MAX_BASINS then
        basins, count = {}, 0
      end
      memory = { names = {}, lanes = {}, upstreams = {} }
      basins[name], count = memory, count + 1
    end
  end

  -- The name of a key of the basin.
  function key(what, a, b, c, d)
    local names = memory.names
    local name = names[what]
    if not name then
      name = BASIN .. ':' .. what
      names[what] = name
    end
    if d then
      return name .. ':' .. a .. ':' .. b .. ':' .. c .. ':' .. d
    elseif c then
      return name .. ':' .. a .. ':' .. b .. ':' .. c
    elseif b then
      return name .. ':' .. a .. ':' .. b
    end
    return a and name .. ':' .. a or name
  end

  -- What is kept of a lane or upstream under its name: its state, packed, and what is remembered of it if there is a rule.
  function read_ruled(kind, name)
    local known = memory[kind][name]
    if known then
      return redis.call('HGET', key(kind), name), known
    end
    local raw = redis.call('HMGET', key(kind), name, RULES .. '/' .. name)
    if raw[2] then
      known = { rule = cmsgpack.unpack(raw[2]) }
      memory[kind][name] = known
    end
    return raw[1], known
  end

  -- The state that was written as `raw`. What is remembered is given away once: whoever has it will change it.
  function recall(known, raw)
    local state = known and known.raw == raw and known.state
    if known then
      known.raw, known.state = nil, nil
    end
    return state or cmsgpack.unpack(raw)
  end

  function remember(known, raw, state)
    if known then
      known.raw, known.state = raw, state
    end
  end
end
