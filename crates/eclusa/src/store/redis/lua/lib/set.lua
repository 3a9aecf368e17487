-- Sorted sets, looked at from their beginning. What was added or removed is known here at once and to Redis at the end.

local set
do
  local Set = {}
  Set.__index = Set
  local sets = {}
  local set_order = {}

  function set(name)
    local found = sets[name]
    if not found then
      found = setmetatable({ name = name, size = 8, gone = {}, own = {}, added = {} }, Set)
      sets[name] = found
      set_order[#set_order + 1] = found
    end
    return found
  end

  local function stands_before(a, b)
    if a[1] ~= b[1] then
      return a[1] < b[1]
    end
    return number_in(a[2]) < number_in(b[2])
  end

  function Set:read()
    local got = redis.call('ZRANGE', self.name, 0, self.size - 1, 'WITHSCORES')
    self.window, self.at = {}, 1
    for i = 1, #got, 2 do
      self.window[#self.window + 1] = { tonumber(got[i + 1]), got[i] }
    end
    self.whole = #self.window < self.size
    self.size = min(self.size * 4, 128)
  end

  function Set:write()
    local removed, added = {}, {}
    for member in pairs(self.gone) do
      if not self.own[member] then
        removed[#removed + 1] = member
      end
    end
    for _, entry in ipairs(self.added) do
      added[#added + 1] = entry[1]
      added[#added + 1] = entry[2]
    end
    in_parts(removed, 1000, function(...) redis.call('ZREM', self.name, ...) end)
    in_parts(added, 1000, function(...) redis.call('ZADD', self.name, ...) end)
    self.gone, self.own, self.added = {}, {}, {}
  end

  -- The first member and its score.
  function Set:first()
    while true do
      if not self.window then
        self:read()
      end
      local head = self.window[self.at]
      while head and self.gone[head[2]] do
        self.at = self.at + 1
        head = self.window[self.at]
      end
      if head or self.whole then
        local own = self.added[1]
        if own and (not head or stands_before(own, head)) then
          head = own
        end
        if head then
          return head[2], head[1]
        end
        return nil
      end
      self:write()
      self.window = nil
    end
  end

  -- The last member and its score.
  function Set:last()
    self:write()
    self.window = nil
    local got = redis.call('ZRANGE', self.name, 0, 0, 'REV', 'WITHSCORES')
    return got[1], tonumber(got[2])
  end

  -- The first member with a score of at least `from` and below `to`, and its score.
  function Set:first_between(from, to)
    self:write()
    self.window = nil
    local got = redis.call('ZRANGE', self.name, from, '(' .. string.format('%.0f', to), 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    return got[1], tonumber(got[2])
  end

  function Set:count()
    self:write()
    self.window = nil
    return redis.call('ZCARD', self.name)
  end

  function Set:remove(member)
    if self.own[member] then
      self.own[member] = nil
      for i, entry in ipairs(self.added) do
        if entry[2] == member then
          table.remove(self.added, i)
          break
        end
      end
    end
    self.gone[member] = true
  end

  function Set:add(member, score)
    self:remove(member)
    local entry, at = { score, member }, #self.added
    while at > 0 and stands_before(entry, self.added[at]) do
      at = at - 1
    end
    table.insert(self.added, at + 1, entry)
    self.own[member] = true
  end

  at_end[#at_end + 1] = function()
    for _, changed in ipairs(set_order) do
      changed:write()
    end
  end
end
