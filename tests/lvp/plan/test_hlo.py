"""Collectives are read from a program's text: their size, number of devices and number of executions."""

import pytest

from lvp.plan.hlo import Collective, collectives

PROGRAM = """HloModule jit_step, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%layer (carry: (s32[], bf16[8,4])) -> (s32[], bf16[8,4]) {
  %carry = (s32[], bf16[8,4]{1,0}) parameter(0)
  %w = bf16[8,4]{1,0:T(8,128)(2,1)} all-gather(%shard), channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}
  %r = (f32[16]{0}, f32[4]{0}) all-reduce(%a, %b), channel_id=2, replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add
  ROOT %out = (s32[], bf16[8,4]{1,0}) tuple(%i, %w)
}

%fusion_a (p: bf16[8,4]) -> bf16[8,4] {
  ROOT %g = bf16[64,4]{1,0} all-gather(%p), channel_id=9, replica_groups=mesh['x'=4,'y'=2] {'x','y'}, dimensions={0}
}

%window (carry: (u32[], bf16[6])) -> (u32[], bf16[6]) {
  %carry = (u32[], bf16[6]{0}) parameter(0)
  %i = u32[]{:T(128)} get-tuple-element(%carry), index=0
  %v = bf16[6]{0} get-tuple-element(%carry), index=1
  %one = u32[]{:T(128)} constant(1)
  %two = u32[]{:T(128)} constant(2)
  %other = u32[]{:T(128)} add(%i, %one)
  %next_i = u32[]{:T(128)} add(%i, %two), metadata={op_name="dot_general"}
  %sent = bf16[6]{0} collective-permute(%v), channel_id=8, source_target_pairs={{0,1},{1,0}}
  ROOT %next = (u32[], bf16[6]{0}) tuple(%next_i, %sent)
}

%below_seven (carry: (u32[], bf16[6])) -> pred[] {
  %constant.1 = u32[]{:T(128)} constant(7)
  %carry = (u32[], bf16[6]{0}) parameter(0)
  %count = u32[] get-tuple-element(%carry), index=0
  ROOT %go = pred[] compare(%count, %constant.1), direction=LT
}

%step (carry: (s32[], bf16[8,4])) -> (s32[], bf16[8,4]) {
  %windows = (u32[], bf16[6]{0}) while(%k), condition=%below_seven, body=%window, metadata={op_name="dot_general"}
  %layers = (s32[], bf16[8,4]{1,0}) while(%t), body=%layer, backend_config={"known_trip_count":{"n":"24"}}
  %f1 = bf16[8,4]{1,0} fusion(%q), kind=kCustom, calls=%fusion_a
  %f2 = bf16[8,4]{1,0} fusion(%q), kind=kCustom, calls=%fusion_a
  %s = f32[2,4]{1,0} reduce-scatter(%h), channel_id=3, replica_groups=[1,8]<=[8], dimensions={0}, to_apply=%add
  ROOT %again = (s32[], bf16[8,4]{1,0}) tuple(%i, %w)
}

ENTRY %main (p0: bf16[8,4]) -> bf16[8,4] {
  %p0 = bf16[8,4]{1,0} parameter(0)
  %alone = f32[] all-reduce(%z), channel_id=4, replica_groups={{0},{1}}, to_apply=%add
  %once = f32[3]{0} all-reduce(%z), channel_id=5, replica_groups=[1,8]<=[8], to_apply=%add
  %loop = (s32[], bf16[8,4]{1,0}) while(%t), condition=%d, body=%step
  %start = (f32[2]{0}, f32[16]{0}) all-gather-start(%y), channel_id=6, replica_groups=[1,8]<=[8], dimensions={0}
  %done = f32[16]{0} all-gather-done(%start)
  %moved = (f32[5]{0}, f32[5]{0}, u32[], u32[]) collective-permute-start(%v), channel_id=7, source_target_pairs={{0,1}}
  ROOT %end = bf16[8,4]{1,0} get-tuple-element(%loop), index=1
}
"""

IN_LOOP = [
    Collective("all-gather", group=4, size=64, times=24),
    Collective("all-gather", group=8, size=512, times=1),  # one, although two fusions run beside it
    Collective("all-reduce", group=2, size=80, times=24),
    Collective("collective-permute", group=1, size=12, times=4),  # 0, 2, 4, 6
    Collective("reduce-scatter", group=8, size=256, times=1),
]


def test_collectives_in_loops_of_unknown_length():
    assert collectives(PROGRAM, in_loop=True) == IN_LOOP


def test_all_collectives_of_a_program():
    outside = [
        Collective("all-gather", group=8, size=64, times=1),
        Collective("all-reduce", group=8, size=12, times=1),
        Collective("collective-permute", group=1, size=20, times=1),
    ]
    assert sorted(collectives(PROGRAM)) == sorted(IN_LOOP + outside)  # and none within one device


@pytest.mark.parametrize(
    ("kind", "moved"),
    [
        ("all-gather", 700),
        ("reduce-scatter", 700),
        ("all-reduce", 1400),
        ("all-to-all", 700),
        ("collective-permute", 800),
    ],
)
def test_bytes_on_a_ring(kind, moved):
    """Each of eight devices passes on all parts except one. A sum is sent around twice."""
    assert Collective(kind, group=8, size=800, times=1).moved == moved
    assert Collective(kind, group=8, size=800, times=3).moved == 3 * moved
