-- Sorted sets, looked at from their beginning. What was added or removed is known here at once and to Redis at the end.

local set
do
  local Set = {}
  Set.__index = Set
  local sets, set_order
  local MAX_WINDOW = 128

  at_start[#at_start + 1] = function()
    sets, set_order = {}, {}
  end

  function set(name)
    local found = sets[name]
    if not found then
      found = setmetatable({ name = name, size = 8, gone = {}, own = {} }, Set)
      sets[name] = found
      set_order[#set_order + 1] = found
    end
    return found
  end

  local function stands_before(score, member, other_score, other)
    if score ~= other_score then
      return score < other_score
    end
    return number_in(member) < number_in(other)
  end

  function Set:read()
    -- Members and scores by turns.
    self.window, self.at = redis.call('ZRANGE', self.name, 0, self.size - 1, 'WITHSCORES'), 1
    self.whole = #self.window < self.size * 2
    self.size = min(self.size * 4, MAX_WINDOW)
  end

  function Set:write()
    local removed, added = {}, {}
    for member in pairs(self.gone) do
      if not self.own[member] then
        removed[#removed + 1] = member
      end
    end
    for member, score in pairs(self.own) do
      added[#added + 1] = score
      added[#added + 1] = member
    end
    in_parts('ZREM', self.name, removed)
    in_parts('ZADD', self.name, added)
    self.gone, self.own, self.best = {}, {}, nil
  end

  -- The first of those added here. What comes after it is looked for only when it goes.
  local function first_added(self)
    local best, own = self.best, self.own
    if not best and next(own) then
      local best_score = nil
      for member, score in pairs(own) do
        if not best or stands_before(score, member, best_score, best) then
          best, best_score = member, score
        end
      end
      self.best = best
    end
    return best
  end

  -- The first member and its score.
  function Set:first()
    while true do
      if not self.window then
        self:read()
      end
      local gone, window, at = self.gone, self.window, self.at
      while window[at] and gone[window[at]] do
        at = at + 2
      end
      self.at = at
      local head, head_score = window[at], tonumber(window[at + 1])
      if head or self.whole then
        local own = first_added(self)
        if own and (not head or stands_before(self.own[own], own, head_score, head)) then
          return own, self.own[own]
        end
        return head, head_score
      end
      self:write()
      self.window = nil
    end
  end

  -- Reads at least so many members when it is next read.
  function Set:expect(count)
    self.size = max(self.size, min(count, MAX_WINDOW))
  end

  -- Members that will come first, at most `count`, as far as they were read.
  function Set:ahead(count)
    local found, at = {}, self.at
    while self.window and self.window[at] and #found < count do
      if not self.gone[self.window[at]] then
        found[#found + 1] = self.window[at]
      end
      at = at + 2
    end
    return found
  end

  -- The last member and its score.
  function Set:last()
    self:write()
    self.window = nil
    local got = redis.call('ZRANGE', self.name, 0, 0, 'REV', 'WITHSCORES')
    return got[1], tonumber(got[2])
  end

  -- The last members, at most `count`, from the end.
  function Set:last_ones(count)
    self:write()
    self.window = nil
    return redis.call('ZRANGE', self.name, 0, count - 1, 'REV')
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
    local count = redis.call('ZCARD', self.name)
    if count == 0 then
      self.window, self.at, self.whole = {}, 1, true
    end
    return count
  end

  function Set:remove(member)
    self.own[member], self.gone[member] = nil, true
    if self.best == member then
      self.best = nil
    end
  end

  function Set:add(member, score)
    local own, best = self.own, self.best
    if best == member then
      self.best = nil
    elseif best and stands_before(score, member, own[best], best) then
      self.best = member
    end
    own[member], self.gone[member] = score, true
  end

  at_end[#at_end + 1] = function()
    for _, changed in ipairs(set_order) do
      changed:write()
    end
  end
end
