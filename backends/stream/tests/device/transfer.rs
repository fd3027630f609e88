//! Byte movement.
#![expect(unsafe_code, reason = "looks at mapped memory")]
use super::support::{
    DEVICE, Gate, MAIN, MIB, allocate, assert_same, at, free, kind, pattern, pinned, read,
    timeline, write,
};
use crate::own::{Device, Rows};
use omniheap_core::{Backend, ErrorKind, Map, Move, Timelines, Transfer};

cases! {
    Nothing: small_writes_keep_their_order, a_fill_touches_its_bytes_only, batched_copies_all_arrive,
        copies_cross_heaps, rows_are_copied, rows_outside_are_refused,
        pinned_slices_go_directly, threads_transfer_beside_each_other,
        a_refused_batch_changes_nothing, zero_bytes_do_nothing;
    Compiler: a_written_slice_may_be_changed_at_once, many_small_writes_wait_their_turn,
        a_read_waits_for_its_timeline;
}

fn small_writes_keep_their_order(device: &Device) {
    let block = allocate(device, DEVICE, 1000);
    // More bytes than one bounce holds, each place written many times: the last one counts.
    for round in 0..20_000u32 {
        let bytes = round.to_le_bytes().repeat(50);
        write(device, &block, u64::from(round % 5) * 200, &bytes);
    }
    for place in 0..5u32 {
        let expected = (19_995 + place).to_le_bytes().repeat(50);
        assert_same(&read(device, &block, u64::from(place) * 200, 200), &expected, "last write");
    }
    free(device, block);
}

fn a_fill_touches_its_bytes_only(device: &Device) {
    let block = allocate(device, DEVICE, 4096);
    for (offset, size) in [(0u64, 4096u64), (1, 1), (3, 100), (4, 64), (5, 4), (4095, 1), (8, 7)] {
        let mut expected = pattern(4096, offset);
        write(device, &block, 0, &expected);
        device.fill(MAIN, at(&block, offset), size, 0xB7).expect("in range");
        let start = usize::try_from(offset).expect("small");
        expected[start..start + usize::try_from(size).expect("small")].fill(0xB7);
        assert_same(&read(device, &block, 0, 4096), &expected, "fill");
    }
    free(device, block);
}

fn batched_copies_all_arrive(device: &Device) {
    let (from, to) = (allocate(device, DEVICE, 4 * MIB), allocate(device, DEVICE, 4 * MIB));
    let bytes = pattern(4 << 20, 5);
    write(device, &from, 0, &bytes);
    device.fill(MAIN, at(&to, 0), 4 * MIB, 0).expect("in range");
    // Every second kibibyte, backwards, into the other block and within it.
    let moves: Vec<_> = (0..1024u64)
        .map(|i| Move { from: at(&from, i * 4096), to: at(&to, (1023 - i) * 4096), size: 1000 })
        .collect();
    device.copy(MAIN, &moves).expect("in range");
    let inside = Move { from: at(&to, 0), to: at(&to, 2000), size: 1000 };
    device.copy(MAIN, &[inside]).expect("one block may copy to itself");
    let seen = read(device, &to, 0, 4 << 20);
    for i in 0..1024usize {
        let (start, source) = ((1023 - i) * 4096, i * 4096);
        assert_same(&seen[start..start + 1000], &bytes[source..source + 1000], "moved");
        assert_same(&seen[start + 3000..start + 4096], &[0; 1096], "between");
    }
    assert_same(&seen[2000..3000], &seen[..1000], "inside");
    free(device, from);
    free(device, to);
}

fn copies_cross_heaps(device: &Device) {
    let heaps: Vec<_> = device.caps().heap_ids().map(|(id, _)| id).collect();
    for &source in &heaps {
        for &target in heaps.iter().filter(|&&target| target != source) {
            let (from, to) = (allocate(device, source, 40_000), allocate(device, target, 40_000));
            let bytes = pattern(40_000, u64::from(source.0) * 16 + u64::from(target.0));
            write(device, &from, 0, &bytes);
            let step = Move { from: at(&from, 1), to: at(&to, 2), size: 39_998 };
            device.copy(MAIN, &[step]).expect("in range");
            assert_same(&read(device, &to, 2, 39_998), &bytes[1..39_999], "across heaps");
            free(device, from);
            free(device, to);
        }
    }
}

fn rows_are_copied(device: &Device) {
    let (from, to) = (allocate(device, DEVICE, 64 << 10), allocate(device, DEVICE, 64 << 10));
    let bytes = pattern(64 << 10, 9);
    write(device, &from, 0, &bytes);
    device.fill(MAIN, at(&to, 0), 64 << 10, 0).expect("in range");
    let rows = Rows {
        from: at(&from, 100),
        from_pitch: 300,
        to: at(&to, 7),
        to_pitch: 512,
        width: 250,
        height: 100,
    };
    device.copy_rows(MAIN, rows).expect("in range");
    let seen = read(device, &to, 0, 64 << 10);
    for row in 0..100 {
        let (source, target) = (100 + row * 300, 7 + row * 512);
        assert_same(&seen[target..target + 250], &bytes[source..source + 250], "row");
        assert_same(&seen[target + 250..target + 512], &[0; 262], "between rows");
    }
    free(device, from);
    free(device, to);
}

fn rows_outside_are_refused(device: &Device) {
    let block = allocate(device, DEVICE, 1000);
    let good = Rows {
        from: at(&block, 0),
        from_pitch: 100,
        to: at(&block, 500),
        to_pitch: 100,
        width: 10,
        height: 5,
    };
    assert_eq!(device.copy_rows(MAIN, good), Ok(()));
    for bad in [
        Rows { height: 6, ..good },
        Rows { width: 101, ..good },
        Rows { from_pitch: u64::MAX, ..good },
        Rows { height: u64::MAX, ..good },
        Rows { to: at(&block, 600), ..good },
    ] {
        let result = kind(device.copy_rows(MAIN, bad));
        assert_eq!(result, Some(ErrorKind::OutOfRange), "{bad:?}");
    }
    free(device, block);
}

fn pinned_slices_go_directly(device: &Device) {
    let length = 16 << 20;
    let (staged, block) =
        (allocate(device, pinned(device), 16 * MIB), allocate(device, DEVICE, 16 * MIB));
    let host = device.map(&staged).expect("host-visible").as_ptr();
    // SAFETY: the block has that many mapped bytes, and only this case looks at them.
    let slice = unsafe { core::slice::from_raw_parts_mut(host, length) };
    let bytes = pattern(length, 21);
    slice.copy_from_slice(&bytes);
    write(device, &block, 0, slice);
    slice.fill(0);
    device.read(MAIN, at(&block, 0), slice).expect("in range");
    assert_same(slice, &bytes, "pinned");
    free(device, staged);
    free(device, block);
}

fn threads_transfer_beside_each_other(device: &Device) {
    std::thread::scope(|scope| {
        for seed in 0..6u64 {
            scope.spawn(move || {
                let on = timeline(device);
                let block = allocate(device, DEVICE, 20 * MIB);
                for round in 0..3 {
                    let bytes = pattern(20 << 20, seed * 10 + round);
                    device.write(on, at(&block, 0), &bytes).expect("in range");
                    let mut seen = vec![0; 20 << 20];
                    device.read(on, at(&block, 0), &mut seen).expect("in range");
                    assert_same(&seen, &bytes, "beside each other");
                }
                device.close(on).expect("it was open");
                free(device, block);
            });
        }
    });
}

fn a_refused_batch_changes_nothing(device: &Device) {
    let (from, to) = (allocate(device, DEVICE, 100), allocate(device, DEVICE, 100));
    write(device, &from, 0, &[1; 100]);
    write(device, &to, 0, &[2; 100]);
    let good = Move { from: at(&from, 0), to: at(&to, 0), size: 50 };
    let bad = Move { from: at(&from, 60), to: at(&to, 60), size: 41 };
    assert_eq!(kind(device.copy(MAIN, &[good, bad])), Some(ErrorKind::OutOfRange));
    assert_same(&read(device, &to, 0, 100), &[2; 100], "untouched");
    free(device, from);
    free(device, to);
}

fn zero_bytes_do_nothing(device: &Device) {
    let block = allocate(device, DEVICE, 10);
    assert_eq!(device.write(MAIN, at(&block, 10), &[]), Ok(()));
    assert_eq!(device.read(MAIN, at(&block, 10), &mut []), Ok(()));
    assert_eq!(device.fill(MAIN, at(&block, 10), 0, 1), Ok(()));
    let nothing = Move { from: at(&block, 0), to: at(&block, 0), size: 0 };
    assert_eq!(device.copy(MAIN, &[nothing]), Ok(()));
    assert_eq!(kind(device.write(MAIN, at(&block, 11), &[])), Some(ErrorKind::OutOfRange));
    free(device, block);
}

fn a_written_slice_may_be_changed_at_once(device: &Device) {
    for length in [16usize, 900_000, 10 << 20] {
        let block = allocate(device, DEVICE, 10 * MIB);
        let expected = pattern(length, 77);
        let mut bytes = expected.clone();
        // Once before, so that the pinned memory on the way is there already.
        write(device, &block, 0, &bytes);
        device.fill(MAIN, at(&block, 0), 10 * MIB, 0).expect("in range");
        let gate = Gate::close(device, MAIN);
        write(device, &block, 0, &bytes);
        bytes.fill(0);
        gate.open();
        assert_same(&read(device, &block, 0, length), &expected, "as written");
        drop(gate);
        free(device, block);
    }
}

fn many_small_writes_wait_their_turn(device: &Device) {
    const EACH: usize = 900_000;
    let block = allocate(device, DEVICE, 16 * EACH as u64);
    let expected = pattern(16 * EACH, 31);
    for pass in 0..2 {
        // The first pass makes the pinned memory; in the second one, several bounces fill while nothing runs.
        let gate = (pass == 1).then(|| Gate::close(device, MAIN));
        for (index, bytes) in expected.chunks(EACH).enumerate() {
            write(device, &block, (index * EACH) as u64, bytes);
        }
        drop(gate);
        assert_same(&read(device, &block, 0, expected.len()), &expected, "bounces");
        device.fill(MAIN, at(&block, 0), block.size(), 0).expect("in range");
    }
    free(device, block);
}

fn a_read_waits_for_its_timeline(device: &Device) {
    let block = allocate(device, DEVICE, 64);
    write(device, &block, 0, &[1; 64]);
    device.wait_idle().expect("the device works");
    let gate = Gate::close(device, MAIN);
    device.fill(MAIN, at(&block, 0), 64, 2).expect("in range");
    let other = timeline(device);
    let mut seen = [0; 64];
    device.read(other, at(&block, 0), &mut seen).expect("in range");
    assert_eq!(seen, [1; 64], "another timeline does not wait");
    gate.open();
    assert_same(&read(device, &block, 0, 64), &[2; 64], "its own timeline does");
    drop(gate);
    device.close(other).expect("it was open");
    free(device, block);
}
