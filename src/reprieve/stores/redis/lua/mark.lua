-- Notes cancel requests and progress beside jobs that run.
--
-- needs: calls record rate limits places line events settle
-- KEYS  1: the partition
-- ARGV  1: for each mark: session or '', whether it asks to stop, whether it has progress (msgpack)
--       2: ids  3 …: progress
-- Answer: for each mark 1 or 0, whether the job was running (in that session)
--
--   :mk hash: job → asked to stop (1 byte), has progress (1 byte), progress

local marks, ids = cmsgpack.unpack(ARGV[1]), split(ARGV[2], 16)
local leases, answer, is_asked = leases_of(ids), {}, false
for number, mark in ipairs(marks) do
  local lease, id = leases[number], ids[number]
  local is_heard = lease and (mark[1] == '' or mark[1] == lease[1])
  if is_heard then
    local before = call('HGET', P .. ':mk', id) or '\0\0'
    local stop = mark[2] and '\1' or sub(before, 1, 1)
    local progress = mark[3] and '\1' .. ARGV[2 + number] or sub(before, 2)
    call('HSET', P .. ':mk', id, stop .. progress)
    is_asked = is_asked or mark[2]
  end
  answer[number] = is_heard and 1 or 0
end
if is_asked then
  ring('*')
end
return answer
