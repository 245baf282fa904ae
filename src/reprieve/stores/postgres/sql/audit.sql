-- name: record
insert into audit (at, actor, kind, name, tenant, packed)
values (%(at)s, %(actor)s, %(kind)s, %(name)s, %(tenant)s, %(packed)s);

-- name: newest
-- The condition selects an index; without one it is that of the time.
select at, seq, packed from audit
where {condition} and (at, seq) < (%(at)s::int8, %(seq)s::int8) and at >= %(end_at)s::int8 order by at desc, seq desc limit %(count)s;

-- name: oldest
select at, seq, packed from audit
where {condition} and (at, seq) > (%(at)s::int8, %(seq)s::int8) and at <= %(end_at)s::int8 order by at, seq limit %(count)s;

-- name: of_subject
kind = %(kind)s and name = %(name)s

-- name: of_actor
actor = %(actor)s

-- name: of_tenant
tenant = %(tenant)s

-- name: of_all
true

-- name: prune
with gone as (
    delete from audit where seq = any (array(
        select seq from audit where at < %(before)s order by at, seq limit %(max_rows)s
    )) returning 1
)
select count(*) from gone;
