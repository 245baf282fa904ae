-- name: record
insert into reprieve_audit (at, actor, kind, name, tenant, packed) values (:at, :actor, :kind, :name, :tenant, :packed);

-- name: newest
-- The condition selects an index; without one it is that of the time.
select at, seq, packed from reprieve_audit as audit
where {condition} and (at, seq) < (:at, :seq) and at >= :end_at order by at desc, seq desc limit :count;

-- name: oldest
select at, seq, packed from reprieve_audit as audit
where {condition} and (at, seq) > (:at, :seq) and at <= :end_at order by at, seq limit :count;

-- name: of_subject
kind = :kind and name = :name

-- name: of_actor
actor = :actor

-- name: of_tenant
tenant = :tenant

-- name: of_all
true

-- name: prune
delete from reprieve_audit as audit where seq in (
    select seq from reprieve_audit as old where at < :before order by at, seq limit :max_rows
);
