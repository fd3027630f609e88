//! Many threads at once: every byte is where its owner put it.
use crate::common::{HEAP, MIB, at, free, host, read, used};
use crate::remap::{destroy, map, unmap};
use omniheap_core::{Backend, Move, Page, Remap, Timelines, Transfer};
use omniheap_host::Host;
use std::thread;

const THREADS: u8 = 8;
const ROUNDS: u64 = 100;

/// Moves a stamp through a plain block and through pages that change their places.
fn round(host: &Host, stamp: u8, seed: u64) {
    let line = host.open().expect("opens");
    let plain = host.allocate(HEAP, 64 << 10).expect("room for all");
    let reserved = host.reserve(HEAP, 16 * MIB).expect("addresses");
    let mut pages: Vec<Page> = Vec::new();
    host.create(HEAP, 2, &mut pages).expect("room for all");
    let first = seed % 3;
    map(host, &reserved, first, &pages).expect("empty");
    let offset = (seed * 4099) % (60 << 10);
    host.fill(line, at(&plain, offset), 4096, stamp).expect("inside");
    // Across the border of the two pages.
    let border = (first + 1) * 2 * MIB - 2048;
    let step = Move { from: at(&plain, offset), to: at(&reserved, border), size: 4096 };
    host.copy(line, &[step]).expect("disjoint");
    assert_eq!(read(host, line, &reserved, border, 4096), vec![stamp; 4096]);
    unmap(host, &reserved, first, 2).expect("idle");
    map(host, &reserved, first + 3, &pages).expect("empty");
    assert_eq!(read(host, line, &reserved, border + 6 * MIB, 4096), vec![stamp; 4096]);
    unmap(host, &reserved, first + 3, 2).expect("idle");
    destroy(host, &pages).expect("unmapped");
    host.close(line).expect("alive");
    free(host, plain).expect("idle");
    free(host, reserved).expect("empty");
}

#[test]
fn threads_do_not_see_each_other() {
    let host = host(64 * MIB);
    thread::scope(|scope| {
        for stamp in 1..=THREADS {
            let host = &host;
            scope.spawn(move || {
                (0..ROUNDS).for_each(|n| round(host, stamp, n * u64::from(stamp)));
            });
        }
    });
    assert_eq!(used(&host), 0);
}
