-- What every verb is made of. All of it is made once and stays between calls, so what belongs to one call is made anew by
-- what stands in `at_start`.
--
--   KEYS[1]  the basin: lanes and upstreams that are decided together; the names of their keys begin with it
--   ARGV[1]  the time in ms, or "" for the server's own
--   ARGV[2]  which rules are in force: the prefix of their fields
--   ARGV[3]  what the names of breakers, limiters and cached answers begin with
--   ARGV[4]  the question, packed
--   ARGV[5]  whose gates of upstreams are asked: "" for those that all share, or the process that has its own
--
-- A verb reads what it needs, decides, and writes at its end (`write_all`), so that one that fails half way has changed
-- nothing; but for sets that are counted or looked at from their other end, which are written before.

-- Globals are slow to find.
local redis, cmsgpack, struct, bit, string, table, math = redis, cmsgpack, struct, bit, string, table, math
local ipairs, pairs, next, unpack, tonumber, setmetatable = ipairs, pairs, next, unpack, tonumber, setmetatable

-- Later than anything that happens. All numbers are doubles: times are in ms, tokens in millionths.
local NEVER = 9007199254740992
local MAX_BATCH = 100
local MAX_LOOKS = 400
local floor, min, max = math.floor, math.min, math.max
local HIGH, NORMAL, LOW = 1, 2, 3

local function after(time, span)
  return min(time + span, NEVER)
end

-- Orders by number where scores are equal: Redis compares members byte by byte.
local function numbered(number, rest)
  return struct.pack('>I8', number) .. rest
end

local function number_in(member)
  return (struct.unpack('>I8', member))
end

-- A whole number as text. One that Redis makes text of itself costs as much as a small command.
local function whole(number)
  return string.format('%d', number)
end

-- Stands for a table where nothing was put yet.
local NOTHING = {}

-- Commands take a few thousand arguments at the most.
local MAX_ARGUMENTS = 1000

local function in_parts(command, name, list)
  for from = 1, #list, MAX_ARGUMENTS do
    redis.call(command, name, unpack(list, from, min(from + MAX_ARGUMENTS - 1, #list)))
  end
end

-- What a call does at its beginning and at its end, in the order in which it was asked for. At the beginning everything is
-- forgotten that the call before may have left.
local BASIN, TIME, RULES, GATES, OWNER
local at_start, at_end = {}, {}

local function begin_call(keys, args)
  BASIN, TIME, RULES, GATES, OWNER = keys[1], args[1], args[2], args[3], args[5]
  for i = 1, #at_start do
    at_start[i]()
  end
end

local function write_all()
  for i = 1, #at_end do
    at_end[i]()
  end
end

-- The verbs by name: each is given the question and returns the answer.
local verbs = {}
