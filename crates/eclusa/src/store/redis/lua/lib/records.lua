-- Fields of a hash, each a packed record: read when first asked for, written at the end if changed.

local records, basin_records
do
  local Records = {}
  Records.__index = Records
  local all_records, records_order
  local of_basin = {}

  at_start[#at_start + 1] = function()
    all_records, records_order = {}, {}
    for i = 1, #of_basin do
      local own = of_basin[i]
      own.name, own.known, own.dirty = key(own.what), NOTHING, NOTHING
    end
  end

  -- `read` makes a table of a packed record, `pack` the opposite.
  function records(name, read, pack)
    local found = all_records[name]
    if not found then
      found = setmetatable({ name = name, read = read, pack = pack, known = NOTHING, dirty = NOTHING }, Records)
      all_records[name] = found
      records_order[#records_order + 1] = found
    end
    return found
  end

  -- Those that a basin has once: the same table in every call.
  function basin_records(what, read, pack)
    local made = setmetatable({ what = what, read = read, pack = pack }, Records)
    of_basin[#of_basin + 1] = made
    return made
  end

  local function learn(self, id, record)
    if self.known == NOTHING then
      self.known = {}
    end
    self.known[id] = record
  end

  local function put(self, id, record)
    if self.dirty == NOTHING then
      self.dirty = {}
      self.known = self.known == NOTHING and {} or self.known
    end
    self.known[id], self.dirty[id] = record, true
  end

  function Records:get(id)
    local known = self.known[id]
    if known == nil then
      local raw = redis.call('HGET', self.name, id)
      known = raw and self.read(raw, id)
      learn(self, id, known)
    end
    return known or nil
  end

  function Records:is_known(id)
    return self.known[id] ~= nil
  end

  -- Reads at once what will be asked for one by one.
  function Records:fetch(ids)
    local unknown = {}
    for _, id in ipairs(ids) do
      if self.known[id] == nil then
        learn(self, id, false)
        unknown[#unknown + 1] = id
      end
    end
    for from = 1, #unknown, MAX_ARGUMENTS do
      local to = min(from + MAX_ARGUMENTS - 1, #unknown)
      for i, raw in ipairs(redis.call('HMGET', self.name, unpack(unknown, from, to))) do
        local id = unknown[from + i - 1]
        self.known[id] = raw and self.read(raw, id)
      end
    end
  end

  -- The same as `get`, for those who will change it.
  function Records:change(id)
    local record = self.known[id] or self:get(id)
    if record and not self.dirty[id] then
      put(self, id, record)
    end
    return record
  end

  function Records:put(id, record)
    put(self, id, record)
    return record
  end

  function Records:remove(id)
    put(self, id, false)
  end

  function Records:write()
    if self.dirty == NOTHING then
      return
    end
    local kept, gone = {}, {}
    for id in pairs(self.dirty) do
      local record = self.known[id]
      if record then
        kept[#kept + 1] = id
        kept[#kept + 1] = self.pack(record)
      else
        gone[#gone + 1] = id
      end
    end
    in_parts('HSET', self.name, kept)
    in_parts('HDEL', self.name, gone)
  end

  at_end[#at_end + 1] = function()
    for i = 1, #of_basin do
      of_basin[i]:write()
    end
    for i = 1, #records_order do
      records_order[i]:write()
    end
  end
end
