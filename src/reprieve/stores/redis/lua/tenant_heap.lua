-- The order of tenants in a fair choice, and a heap of them in that order.
--
--   tenant  load, finish, name
--
-- needs calls: floor
-- needs byte_order: is_before_in_bytes
-- exports: is_before, push, pop

-- Whether a tenant is next before another: fewest slots for its weight, then virtual time, then the name.
function is_before(one, other)
  if one.load ~= other.load then
    return one.load < other.load
  elseif one.finish ~= other.finish then
    return one.finish < other.finish
  end
  return is_before_in_bytes(one.name, other.name)
end

function push(heap, tenant)
  local index = #heap + 1
  while index > 1 do
    local parent = floor(index / 2)
    if not is_before(tenant, heap[parent]) then
      break
    end
    heap[index] = heap[parent]
    index = parent
  end
  heap[index] = tenant
end

function pop(heap)
  local first, count = heap[1], #heap
  local last = heap[count]
  heap[count] = nil
  count = count - 1
  if count > 0 then
    local index = 1
    while true do
      local child = 2 * index
      if child > count then
        break
      end
      if child < count and is_before(heap[child + 1], heap[child]) then
        child = child + 1
      end
      if not is_before(heap[child], last) then
        break
      end
      heap[index] = heap[child]
      index = child
    end
    heap[index] = last
  end
  return first
end
