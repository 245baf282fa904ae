-- The order of bytes. Lua compares strings as the server's locale does; Redis sorts, and cursors go on, by bytes.
--
-- needs calls: min
-- exports: is_before_in_bytes

local SORTS_BY_BYTES = 'B' < 'a' and '_' < 'a' and '\127' < '\128' and '\195\40' < '\195\168'

-- Whether a string stands before another.
function is_before_in_bytes(one, other)
  if SORTS_BY_BYTES then
    return one < other
  end
  for index = 1, min(#one, #other) do
    local first, second = string.byte(one, index), string.byte(other, index)
    if first ~= second then
      return first < second
    end
  end
  return #one < #other
end
