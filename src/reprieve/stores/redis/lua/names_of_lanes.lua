-- Returns the names that the members of a list of lanes begin with: one look for each, however many lanes it has.
--
-- needs calls: tag, call
-- KEYS     1: the partition
-- ARGV     1: the list, in the order of bytes, whose members begin with a name and NUL  2: how the names begin  3: how many
-- Returns: the names, in order

local key, prefix, most = tag .. ':' .. ARGV[1], ARGV[2], tonumber(ARGV[3])
-- No name begins with a byte less than 2, nor ends with one.
local names, first = {}, '(' .. prefix .. (prefix == '' and '\1' or '')
while #names < most do
  local member = call('ZRANGEBYLEX', key, first, '+', 'LIMIT', 0, 1)[1]
  local name = member and string.match(member, '^%Z*')
  if not name or string.sub(name, 1, #prefix) ~= prefix then
    break
  end
  names[#names + 1], first = name, '(' .. name .. '\1'
end
return names
