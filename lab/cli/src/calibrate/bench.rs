//! Times one kernel with its table in every place where it may lie.
#![expect(unsafe_code, reason = "launches kernels")]
use core::time::Duration;
use omniheap::{
    Allocation, AnyBackend, Backend as _, Error, ErrorKind, Manager, Point, Request, TimelineId,
    placement::Region,
    seam::{HeapKind, Kernel},
    transfer::Program,
};
use omniheap_shaders::Placed;
use std::time::Instant;

const MAIN: TimelineId = TimelineId::MAIN;

/// Threads of a group of every lookup.
const GROUP: u32 = 256;

/// Most items: their input and output are 128 MiB each.
const MOST: u32 = 1 << 25;

/// Fewest items: one group.
const LEAST_ITEMS: u32 = GROUP;

/// Threads that fill a large device.
const FULL: u32 = 1 << 18;

/// Maximum length of a timed run, whether or not it fills the device.
const ENOUGH: Duration = Duration::from_millis(20);

/// A region that was this many times slower than the fastest in two rounds is not timed again.
const HOPELESS: u32 = 4;

/// Minimum length of a timed run, if there are enough items.
const LEAST: Duration = Duration::from_micros(300);

/// Warm-up time for an idle device.
const WAKE: Duration = Duration::from_millis(5);

/// A run that takes longer is not repeated often.
const SLOW: Duration = Duration::from_millis(10);

/// Runs of which the fastest counts.
const ROUNDS: u32 = 9;

/// A device with input and output of a lookup.
pub(super) struct Bench {
    pub(super) manager: Manager<AnyBackend>,
    input: Allocation<AnyBackend>,
    output: Allocation<AnyBackend>,
    most: u32,
}

/// Time of a kernel with its table in one region.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    pub(super) region: Region,
    pub(super) microseconds: f64,
}

/// One lookup, measured in every place.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) times: Vec<Time>,
    /// Items of one run.
    pub(super) items: u32,
    /// True if every place gave the same numbers.
    pub(super) agree: bool,
}

impl Measured {
    /// Returns the time with the table in `region`, in microseconds.
    pub(super) fn of(&self, region: Region) -> Option<f64> {
        self.times.iter().find(|time| time.region == region).map(|time| time.microseconds)
    }
}

/// A program with its table, ready to be timed.
struct Ready {
    region: Region,
    program: Program<AnyBackend>,
    table: Allocation<AnyBackend>,
    fastest: Duration,
}

impl Bench {
    /// Makes input and output as large as the device and the backend's kind allow.
    pub(super) fn open(device: &AnyBackend) -> Result<Self, Error> {
        let manager = Manager::new(AnyBackend::clone(device));
        let is_fast = !matches!(device.caps().device.backend, "host");
        let mut most = if is_fast { MOST } else { LEAST_ITEMS };
        loop {
            let request = Request::new(u64::from(most) * 4);
            let made = (manager.allocate(&request), manager.allocate(&request));
            if let (Ok(input), Ok(output)) = made {
                input.write(0, &inputs(most))?;
                return Ok(Self { manager, input, output, most });
            }
            most /= 4;
            if most < LEAST_ITEMS {
                return Err(ErrorKind::OutOfDeviceMemory.into());
            }
        }
    }

    /// Times a lookup in every place that the device permits, once for each of the loads: items of one thread.
    pub(super) fn measure(&self, placed: &Placed, loads: &[u32]) -> Result<Vec<Measured>, Error> {
        let mut ready = Vec::new();
        let kernels = [
            (Region::Device, Some(placed.device)),
            (Region::Constant, Some(placed.constant)),
            (Region::Shared, placed.shared),
        ];
        for (region, kernel) in kernels {
            let Some(kernel) = kernel else { continue };
            ready.extend(self.prepare(region, &kernel, placed)?);
        }
        loads.iter().map(|load| self.compare(&mut ready, *load)).collect()
    }

    /// Times a lookup in its places, which take turns.
    fn compare(&self, ready: &mut [Ready], load: u32) -> Result<Measured, Error> {
        let items = self.items(&ready[0], load)?;
        let mut outputs = Vec::new();
        for one in &mut *ready {
            // The first run of a program may still compile it: a small one will do. Where that is all, it counts.
            one.fastest = self.run(one, LEAST_ITEMS, load, 1)?;
            if items > LEAST_ITEMS {
                one.fastest = self.run(one, items, load, 1)?;
            }
            outputs.push(self.sample(items)?);
        }
        // On a slow device few runs tell as much.
        let (rounds, times) = match () {
            () if ready[0].fastest <= SLOW => (ROUNDS, 4),
            () if items > LEAST_ITEMS => (2, 1),
            () => (0, 1),
        };
        for round in 0..rounds {
            let best = ready.iter().map(|one| one.fastest).min().unwrap_or_default();
            for one in ready.iter_mut() {
                let Some(times) = repeats(one.fastest, best, round, times) else { continue };
                one.fastest = one.fastest.min(self.run(one, items, load, times)?);
            }
        }
        let agree = outputs.windows(2).all(|pair| close(&pair[0], &pair[1]));
        let time = |one: &Ready| Time {
            region: one.region,
            microseconds: one.fastest.as_secs_f64() * 1e6,
        };
        Ok(Measured { times: ready.iter().map(time).collect(), items, agree })
    }

    /// Loads a kernel and its table, or nothing where the device has no such place.
    fn prepare(
        &self,
        region: Region,
        kernel: &Kernel,
        placed: &Placed,
    ) -> Result<Option<Ready>, Error> {
        let kind = if region == Region::Constant { HeapKind::Constant } else { HeapKind::Device };
        let caps = self.manager.caps();
        let heap = caps.heap_ids().find(|(_, heap)| heap.kind == kind).map(|(id, _)| id);
        // On a device without a heap of constants, any buffer can be bound as one.
        let request = match heap {
            Some(heap) => Request::new(placed.bytes()).heap(heap),
            None => Request::new(placed.bytes()),
        };
        let fits = caps.constant.is_some_and(|limits| placed.bytes() <= limits.max_bind);
        if region == Region::Constant && !fits {
            return Ok(None);
        }
        let shared = caps.shared.map_or(0, |limits| limits.per_group);
        if region == Region::Shared && placed.bytes() > shared {
            return Ok(None);
        }
        let table = self.manager.allocate(&request).map_err(|error| error.error())?;
        table.write(0, &rows(placed.rows))?;
        let program = self.manager.load(kernel, 0)?;
        Ok(Some(Ready { region, program, table, fastest: Duration::MAX }))
    }

    /// As many items as fill the device and make a run long enough to be timed.
    fn items(&self, one: &Ready, load: u32) -> Result<u32, Error> {
        let mut items = LEAST_ITEMS;
        // A device that slept is slow at first.
        let start = Instant::now();
        while start.elapsed() < WAKE {
            self.run(one, items, load, 1)?;
        }
        let full = FULL.saturating_mul(load).min(self.most);
        while items < self.most {
            // The faster of two, so that no hiccup ends the search early.
            let time = self.run(one, items, load, 1)?.min(self.run(one, items, load, 1)?);
            if time >= ENOUGH || (items >= full && time >= LEAST) {
                break;
            }
            items *= 2;
        }
        Ok(items)
    }

    /// Runs a kernel `times` times; returns how long one took.
    fn run(&self, one: &Ready, items: u32, load: u32, times: u32) -> Result<Duration, Error> {
        let groups = items.div_ceil(GROUP * load);
        let mut parameters = [0; 8];
        parameters[..4].copy_from_slice(&items.to_ne_bytes());
        parameters[4..].copy_from_slice(&(groups * GROUP).to_ne_bytes());
        let start = Instant::now();
        for _ in 0..times {
            let arguments = [&one.table, &self.input, &self.output];
            // SAFETY: input and output have at least `items` numbers, the table as many rows as the kernel was made for,
            // and everything runs on one timeline.
            unsafe { one.program.launch(MAIN, [groups, 1, 1], &arguments, &parameters) }?;
        }
        let timelines = self.manager.backend().as_timelines().ok_or(ErrorKind::Unsupported)?;
        timelines.wait(Point { timeline: MAIN, epoch: timelines.mark(MAIN)? })?;
        Ok(start.elapsed() / times)
    }

    /// Some of the results.
    fn sample(&self, items: u32) -> Result<Vec<f32>, Error> {
        let mut bytes = vec![0; 4 * usize::try_from(items.min(1 << 14)).unwrap_or(0)];
        self.output.read(0, &mut bytes)?;
        let number = |four: &[u8]| f32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
        Ok(bytes.chunks_exact(4).map(number).collect())
    }
}

/// Returns the runs in a round of `times` for a region whose best time is `fastest`. One hiccup does not exclude it: a slow one has a
/// second try.
fn repeats(fastest: Duration, best: Duration, round: u32, times: u32) -> Option<u32> {
    match fastest <= best * HOPELESS {
        true => Some(times),
        false if round == 0 => Some(1),
        false => None,
    }
}

/// Returns whether two results are the same but for the order of roundings.
fn close(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * a.abs().max(1.0))
}

/// Numbers between zero and one that 24 bits hold exactly.
fn numbers(seed: u32) -> impl Iterator<Item = f32> {
    let mut state = seed;
    core::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from(u16::try_from(state >> 16).unwrap_or(0)) / 65536.0
    })
}

fn inputs(count: u32) -> Vec<u8> {
    let count = usize::try_from(count).unwrap_or(0);
    // A stretch is enough: what matters is that neighbours differ.
    let stretch: Vec<u8> = numbers(1).take(1 << 16).flat_map(f32::to_ne_bytes).collect();
    stretch.iter().copied().cycle().take(4 * count).collect()
}

/// Returns a table whose first numbers rise.
fn rows(count: u32) -> Vec<u8> {
    let mut rest = numbers(2);
    let mut next = || rest.next().unwrap_or(0.5);
    let row = |index: u32| {
        let share = f64::from(index) / f64::from(count);
        #[expect(clippy::cast_possible_truncation, reason = "between zero and one")]
        let first = share as f32;
        [first, next() - 0.5, next(), next()]
    };
    (0..count).flat_map(row).flat_map(f32::to_ne_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_place_has_a_second_try_and_no_third() {
        let [best, slow] = [100, 1900].map(Duration::from_micros);
        assert_eq!(repeats(best, best, 0, 4), Some(4));
        assert_eq!(repeats(best * HOPELESS, best, 5, 4), Some(4));
        assert_eq!(repeats(slow, best, 0, 4), Some(1));
        assert_eq!(repeats(slow, best, 1, 4), None);
    }
}
