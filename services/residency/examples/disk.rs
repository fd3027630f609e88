//! Measures a pool that sleeps to a file and wakes up, beside reads and writes of the disk itself: `cargo run --release -p omniheap-residency --example disk --
//! FOLDER [MIB [MIB_OF_AN_ALLOCATION]]`.

#[cfg(target_os = "linux")]
mod linux {
    use core::error::Error;
    use omniheap_core::{
        Allocation, AllocationId, BackingStore, ErrorKind, HostPinner, Manager, PoolConfig,
        Privacy, Request, Sleep, Wake,
    };
    use omniheap_host::Host;
    use omniheap_residency::FileStore;
    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::path::Path;
    use std::time::Instant;

    const ROUNDS: usize = 5;
    const PIECE: usize = 8 << 20;
    /// Direct reads and writes need memory that starts at a multiple of this.
    const ALIGN: usize = 4096;

    fn raw(folder: &Path) -> io::Result<File> {
        let flags = libc::O_TMPFILE | libc::O_DIRECT;
        OpenOptions::new().read(true).write(true).mode(0o600).custom_flags(flags).open(folder)
    }

    fn rate(bytes: u64, start: Instant) -> f64 {
        bytes as f64 / start.elapsed().as_secs_f64() / 1e9
    }

    /// The rates at which the disk takes and gives bytes.
    fn disk(folder: &Path, bytes: u64) -> io::Result<[f64; 2]> {
        let (file, mut memory) = (raw(folder)?, vec![7; PIECE + ALIGN]);
        let skipped = memory.as_ptr().align_offset(ALIGN);
        let piece = &mut memory[skipped..skipped + PIECE];
        let start = Instant::now();
        (0..bytes).step_by(PIECE).try_for_each(|at| file.write_all_at(piece, at))?;
        let write = rate(bytes, start);
        let start = Instant::now();
        (0..bytes).step_by(PIECE).try_for_each(|at| file.read_exact_at(piece, at))?;
        Ok([write, rate(bytes, start)])
    }

    /// The rates at which the store takes and gives the bytes of allocations whose memory was touched before, as a device's is.
    fn alone(
        store: &FileStore,
        ids: &[AllocationId],
        warm: &mut [u8],
    ) -> Result<[f64; 2], Box<dyn Error>> {
        let part = |at: u64, length: usize| usize::try_from(at).map(|at| at..at + length);
        let (bytes, size) = (warm.len() as u64, warm.len() / ids.len());
        let start = Instant::now();
        for (id, from) in ids.iter().zip(warm.chunks(size)) {
            store.put(*id, size as u64, Privacy::Open, &mut |at, piece| {
                let part = part(at, piece.len()).map_err(|_| ErrorKind::OutOfRange)?;
                piece.copy_from_slice(&from[part]);
                Ok(())
            })?;
        }
        ids.iter().try_for_each(|id| store.flush(*id))?;
        let (put, start) = (rate(bytes, start), Instant::now());
        for (id, to) in ids.iter().zip(warm.chunks_mut(size)) {
            store.get(*id, &mut |at, piece| {
                let part = part(at, piece.len()).map_err(|_| ErrorKind::OutOfRange)?;
                to[part].copy_from_slice(piece);
                Ok(())
            })?;
        }
        let got = rate(bytes, start);
        ids.iter().for_each(|id| store.forget(*id));
        Ok([put, got])
    }

    /// Waits until what was forgotten has left the disk, which is busy with it.
    fn settle(manager: &Manager<Host>, store: &FileStore) -> omniheap_core::Result<()> {
        HostPinner::lend(manager.backend(), |pinner| store.prepare(0, pinner))
    }

    fn median(mut rates: Vec<f64>) -> f64 {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    }

    /// The folder, the bytes, and those of an allocation, as the command line says.
    fn sizes() -> Result<(String, u64, u64), Box<dyn Error>> {
        let mut arguments = std::env::args().skip(1);
        let folder = arguments.next().ok_or("name a folder")?;
        let mib =
            |text: Option<String>, usual: u64| text.map_or(Ok(usual), |text| text.parse::<u64>());
        let (wanted, size) = (mib(arguments.next(), 1024)? << 20, mib(arguments.next(), 64)? << 20);
        // Whole allocations only: each is as long as the next.
        let bytes = wanted - wanted.checked_rem(size).unwrap_or(wanted);
        if bytes == 0 {
            return Err(
                "not one allocation: MIB is at least MIB_OF_AN_ALLOCATION, and that at least 1"
                    .into(),
            );
        }
        Ok((folder, bytes, size))
    }

    pub(crate) fn main() -> Result<(), Box<dyn Error>> {
        let (folder, bytes, size) = sizes()?;
        let manager = Manager::new(Host::new());
        let heap = manager.explain(&Request::new(1))?.placement.heaps.as_slice()[0];
        let pool = manager.create_pool(heap, PoolConfig::new().sleepable())?;
        let made = (0..bytes / size).map(|_| pool.allocate(&Request::new(size)));
        let made = made.collect::<Result<Vec<_>, _>>()?;
        made.iter().try_for_each(|one| one.fill(0, size, 7))?;
        let (store, mut warm) = (FileStore::open(&folder)?, vec![7; usize::try_from(bytes)?]);
        let ids: Vec<_> = made.iter().map(Allocation::id).collect();
        let mut rates = [const { Vec::new() }; 6];
        for _ in 0..ROUNDS {
            let [write, read] = disk(Path::new(&folder), bytes)?;
            let [put, got] = alone(&store, &ids, &mut warm)?;
            settle(&manager, &store)?;
            let start = Instant::now();
            pool.sleep(&Sleep::to(store.clone()))?;
            let (sleep, start) = (rate(bytes, start), Instant::now());
            pool.wake(&Wake::all())?;
            let all = [write, put, sleep, read, got, rate(bytes, start)];
            settle(&manager, &store)?;
            rates.iter_mut().zip(all).for_each(|(rates, now)| rates.push(now));
        }
        let [write, put, sleep, read, got, wake] = rates.map(median);
        let share = |rate: f64, of: f64| format!("{rate:.2} GB/s, {:.2} of it", rate / of);
        println!(
            "the disk takes {write:.2} GB/s; the store {}; a sleep {}",
            share(put, write),
            share(sleep, write)
        );
        println!(
            "the disk gives {read:.2} GB/s; the store {}; a wake {}",
            share(got, read),
            share(wake, read)
        );
        println!("medians of {ROUNDS}");
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn core::error::Error>> {
    linux::main()
}

/// Stores in files are for Linux.
#[cfg(not(target_os = "linux"))]
fn main() {}
