-- tests/bench/redeem.lua -- what a careful user would run inside Redis instead: one atomic script with all the caps.
--
-- KEYS[1] the coupon {left, per_day, per_user, per_user_day, ordinal, "d:" day}; KEYS[2] its user {total, "d:" day, "k:" key}
-- ARGV    Idempotency-Key, day
-- Returns a status line: "ok|replay SLOT ORDINAL LEFT DAY USER USER_DAY", or the code of the refusal
local first = redis.call('HGET', KEYS[2], 'k:' .. ARGV[1])
if first then return {ok = 'replay ' .. first} end

local today = 'd:' .. ARGV[2]
local coupon = redis.call('HMGET', KEYS[1], 'left', 'per_day', 'per_user', 'per_user_day', 'ordinal', today)
if not coupon[1] then return {ok = 'coupon_not_found'} end
local use = redis.call('HMGET', KEYS[2], 'total', today)
local left, day = tonumber(coupon[1]), tonumber(coupon[6] or 0)
local total, user_day = tonumber(use[1] or 0), tonumber(use[2] or 0)
if coupon[3] and total >= tonumber(coupon[3]) then return {ok = 'user_cap_reached'} end
if coupon[4] and user_day >= tonumber(coupon[4]) then return {ok = 'user_daily_cap_reached'} end
if coupon[2] and day >= tonumber(coupon[2]) then return {ok = 'daily_cap_reached'} end
if left < 1 then return {ok = 'sold_out'} end

local ordinal = tonumber(coupon[5] or 0) + 1
left, day, total, user_day = left - 1, day + 1, total + 1, user_day + 1
local answer = string.format('%d %d %d %d %d %d', ordinal - 1, ordinal, left, day, total, user_day)
redis.call('HSET', KEYS[1], 'left', left, 'ordinal', ordinal, today, day)
redis.call('HSET', KEYS[2], 'total', total, today, user_day, 'k:' .. ARGV[1], answer)
return {ok = 'ok ' .. answer}
