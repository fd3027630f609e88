//! Measures 50,000 tensors of 4 KiB beside one tensor of the same bytes, on host memory and from the page cache: `cargo run --release -p omniheap-weights
//! --example small [-- FOLDER]`.
use core::error::Error;
use core::fmt::Write as _;
use core::time::Duration;
use omniheap_core::Manager;
use omniheap_host::Host;
use omniheap_weights::{Load, LoadWeights, WeightsFile};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

const ROUNDS: usize = 9;
const COUNT: u64 = 50_000;
const SIZE: u64 = 4096;

fn write(path: &Path, count: u64, size: u64) -> Result<(), Box<dyn Error>> {
    let mut header = String::from("{");
    for at in 0..count {
        let (comma, begin, end) = (if at > 0 { "," } else { "" }, at * size, (at + 1) * size);
        write!(
            header,
            r#"{comma}"layers.{at:05}":{{"dtype":"U8","shape":[{size}],"data_offsets":[{begin},{end}]}}"#
        )?;
    }
    header.push('}');
    let mut file = File::create(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let block = vec![7; usize::try_from(SIZE)?];
    (0..count * size / SIZE).try_for_each(|_| file.write_all(&block))?;
    Ok(file.sync_all()?)
}

/// The time to open a file, and to load it.
fn time(manager: &Manager<Host>, path: &Path) -> Result<[Duration; 2], Box<dyn Error>> {
    let start = Instant::now();
    let file = WeightsFile::open(&[path])?;
    let opened = start.elapsed();
    let loaded = manager.load_weights(&file, &Load::new())?;
    let whole = start.elapsed();
    drop(loaded);
    Ok([opened, whole - opened])
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let name =
        |kind: &str| folder.join(format!("omniheap-{kind}-{}.safetensors", std::process::id()));
    let [small, one] = [name("small"), name("one")];
    write(&small, COUNT, SIZE)?;
    write(&one, 1, COUNT * SIZE)?;
    let manager = Manager::new(Host::new());
    let mut times = [const { Vec::new() }; 4];
    // The first round warms the page cache and the manager.
    for round in 0..=ROUNDS {
        let ([open, load], [open_one, load_one]) = (time(&manager, &small)?, time(&manager, &one)?);
        let taken = [open, load, open_one, load_one];
        if round > 0 {
            times.iter_mut().zip(taken).for_each(|(all, now)| all.push(now));
        }
    }
    [small, one].iter().try_for_each(fs::remove_file)?;
    let [open, load, open_one, load_one] = times.map(median);
    println!(
        "{COUNT} tensors: open {open:?}, load {load:?}; one: open {open_one:?}, load {load_one:?} (medians of {ROUNDS})"
    );
    println!("ratio {:.2}", (open + load).as_secs_f64() / (open_one + load_one).as_secs_f64());
    Ok(())
}
