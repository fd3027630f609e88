//! The figures of one rank, small enough to be sent to another: at most 64 KiB of JSON.

use crate::step::Step;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Parts of a rank's run in a band.
pub const BAND: usize = 128;
/// Hashes of the requests so far that a digest keeps.
const CHECKPOINTS: usize = 128;
/// Failed requests that a digest describes; later ones are counted only.
const FAILURES: usize = 16;
/// Bytes of one text in a digest.
pub(super) const TEXT: usize = 160;

/// The figures of one rank.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    /// Version of this structure; [`Digest::SCHEMA`].
    pub rank_schema: u32,
    /// The rank, where the recording says.
    pub rank: Option<u32>,
    /// Ranks in the job, where the recording says.
    pub world: Option<u32>,
    /// The file or process that it came from.
    pub origin: String,
    /// True if the recording stops in the middle.
    pub cut_off: bool,
    /// Allocations and frees.
    pub requests: u64,
    /// Time of the last event.
    pub duration_us: u64,
    /// Bytes live at the end.
    pub live_bytes: u64,
    /// Largest sum of live bytes.
    pub peak_live_bytes: u64,
    /// Bytes held from the driver at the end, where recorded.
    pub reserved_bytes: Option<u64>,
    /// Largest sum of bytes held from the driver, where recorded.
    pub peak_reserved_bytes: Option<u64>,
    /// Requests that each rung of the out-of-memory ladder served, by the rung's name.
    pub rungs: BTreeMap<String, u64>,
    /// Requests that failed.
    pub failures: u64,
    /// The first failed requests.
    pub failed: Vec<Failed>,
    /// The label with the most live bytes at the peak (in a report of one moment: then).
    pub largest_label: Option<LabelBytes>,
    /// Most live bytes in each of [`BAND`] equal parts of the run; empty in a report of one moment.
    pub live_band: Vec<u64>,
    /// Most bytes held from the driver in each part; empty where not recorded.
    pub reserved_band: Vec<u64>,
    /// Hashes of the sequence of requests, by which ranks are compared.
    pub sequence: Sequence,
}

/// A request that failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failed {
    /// Time since the rank's recording began.
    pub time_us: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes live then.
    pub live: u64,
    /// Bytes held from the driver then; 0 where not recorded.
    pub reserved: u64,
    /// The largest free run then, where places are recorded.
    pub largest_hole: Option<u64>,
}

impl Failed {
    /// Returns the bytes that were missing: what the largest free run, or where that is unknown all free bytes, lacked.
    pub fn missing(&self) -> u64 {
        let free = self.largest_hole.unwrap_or(self.reserved.saturating_sub(self.live));
        self.requested.saturating_sub(free)
    }
}

/// Bytes under one label.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabelBytes {
    /// The label's path, its beginning cut off where it is long.
    pub label: String,
    /// Bytes live under it.
    pub bytes: u64,
}

/// Hashes of a rank's requests: one after every `stride` of them, and one at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sequence {
    /// Requests between two hashes; a power of two, so that ranks of different lengths share checkpoints.
    pub stride: u64,
    /// The hash of the first `stride`, `2 × stride`, … requests.
    pub hashes: Vec<u64>,
    /// The hash of all of them.
    pub end: u64,
}

impl Default for Sequence {
    fn default() -> Self {
        Self { stride: 1, hashes: Vec::new(), end: 0 }
    }
}

impl Sequence {
    fn add(&mut self, requests: u64, word: u64) {
        self.end = (self.end ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        if !requests.is_multiple_of(self.stride) {
            return;
        }
        self.hashes.push(self.end);
        if self.hashes.len() > CHECKPOINTS {
            let kept = self.hashes.iter().skip(1).step_by(2).copied();
            self.hashes = kept.collect();
            self.stride *= 2;
        }
    }

    /// Returns the hash of the first `requests`, where they are a checkpoint at this and every smaller stride.
    pub(super) fn at(&self, requests: u64) -> Option<u64> {
        let index = (requests / self.stride).checked_sub(1)?;
        self.hashes.get(usize::try_from(index).ok()?).copied()
    }
}

impl Digest {
    /// The version that this crate writes.
    pub const SCHEMA: u32 = 1;
    /// Bytes of JSON that a digest has at most.
    pub const MAX_BYTES: usize = 64 << 10;

    /// Checks a digest that came from elsewhere; the reason is a sentence.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let bands = [&self.live_band, &self.reserved_band];
        if bands.iter().any(|band| !band.is_empty() && band.len() != BAND) {
            return Err("rank digest: a band that has not 128 parts");
        }
        let is_bounded = self.sequence.hashes.len() <= CHECKPOINTS
            && self.failed.len() <= FAILURES
            && self.rungs.len() <= 64;
        if !is_bounded || !self.sequence.stride.is_power_of_two() {
            return Err("rank digest: lists longer than this version writes");
        }
        Ok(())
    }
}

/// Live bytes of a label now, and at the last peak.
#[derive(Debug, Clone, Copy, Default)]
struct Account {
    now: u64,
    at_peak: u64,
    /// The peak that `at_peak` belongs to; bytes that did not change since a peak are those of the peak.
    peak: u64,
}

/// Builds a digest from steps, in one pass.
#[derive(Debug, Default)]
pub(super) struct Digester {
    digest: Digest,
    reserved: u64,
    accounts: Vec<Account>,
    /// Number of the latest peak of live bytes.
    peak: u64,
    /// Part of the run that the last step was in.
    part: usize,
}

impl Digester {
    /// Begins the digest of a run of this length.
    pub(super) fn new(duration_us: u64) -> Self {
        let digest = Digest {
            rank_schema: Digest::SCHEMA,
            duration_us,
            live_band: vec![0; BAND],
            ..Digest::default()
        };
        Self { digest, ..Self::default() }
    }

    pub(super) fn step(&mut self, time_us: u64, step: &Step) {
        self.advance(time_us);
        match *step {
            Step::Allocate { size, label } => {
                self.request(size, 0);
                self.change(label, |bytes| bytes.saturating_add(size));
                self.digest.live_bytes = self.digest.live_bytes.saturating_add(size);
            }
            Step::Free { size, label } => {
                self.request(size, 1);
                self.change(label, |bytes| bytes.saturating_sub(size));
                self.digest.live_bytes = self.digest.live_bytes.saturating_sub(size);
            }
            Step::Take { bytes } => self.hold(self.reserved.saturating_add(bytes)),
            Step::Return { bytes } => self.hold(self.reserved.saturating_sub(bytes)),
            Step::Fail { size } => self.fail(time_us, size),
        }
        if self.digest.live_bytes > self.digest.peak_live_bytes {
            self.digest.peak_live_bytes = self.digest.live_bytes;
            self.peak += 1;
        }
        let (live, part) = (self.digest.live_bytes, self.part);
        self.digest.live_band[part] = self.digest.live_band[part].max(live);
        if let Some(most) = self.digest.reserved_band.get_mut(part) {
            *most = self.reserved.max(*most);
        }
    }

    /// Carries what is held into the parts of the run that passed without a step.
    fn advance(&mut self, time_us: u64) {
        let time = u128::from(time_us.min(self.digest.duration_us));
        let part = time * BAND as u128 / (u128::from(self.digest.duration_us) + 1);
        let part = usize::try_from(part).unwrap_or(BAND - 1).clamp(self.part, BAND - 1);
        self.fill(part);
    }

    fn fill(&mut self, last: usize) {
        for part in self.part + 1..=last {
            self.digest.live_band[part] = self.digest.live_bytes;
            if let Some(most) = self.digest.reserved_band.get_mut(part) {
                *most = self.reserved;
            }
        }
        self.part = last;
    }

    fn request(&mut self, size: u64, kind: u64) {
        self.digest.requests += 1;
        self.digest.sequence.add(self.digest.requests, size << 1 | kind);
    }

    fn change(&mut self, label: u32, apply: impl Fn(u64) -> u64) {
        let index = label as usize;
        if self.accounts.len() <= index {
            self.accounts.resize(index + 1, Account::default());
        }
        let account = &mut self.accounts[index];
        if account.peak != self.peak {
            (account.at_peak, account.peak) = (account.now, self.peak);
        }
        account.now = apply(account.now);
    }

    fn hold(&mut self, bytes: u64) {
        if self.digest.reserved_band.is_empty() {
            self.digest.reserved_band = vec![0; BAND];
        }
        self.reserved = bytes;
        let peak = self.digest.peak_reserved_bytes.unwrap_or(0);
        self.digest.peak_reserved_bytes = Some(peak.max(bytes));
    }

    fn fail(&mut self, time_us: u64, requested: u64) {
        self.digest.failures += 1;
        if self.digest.failed.len() < FAILURES {
            let (live, reserved) = (self.digest.live_bytes, self.reserved);
            self.digest.failed.push(Failed {
                time_us,
                requested,
                live,
                reserved,
                largest_hole: None,
            });
        }
    }

    /// Ends the digest; `text` returns a label's path.
    pub(super) fn finish(mut self, text: impl Fn(u32) -> String) -> Digest {
        self.fill(BAND - 1);
        let at_peak = |account: &Account| {
            if account.peak == self.peak { account.at_peak } else { account.now }
        };
        let held = (0..).zip(self.accounts.iter().map(at_peak));
        // Label 0 is none; the first of equals, so that ranks agree.
        let largest = held
            .filter(|(label, _)| *label > 0)
            .max_by_key(|&(label, bytes)| (bytes, core::cmp::Reverse(label)));
        self.digest.largest_label = largest
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(label, bytes)| LabelBytes { label: text(label), bytes });
        self.digest.reserved_bytes = self.digest.peak_reserved_bytes.map(|_| self.reserved);
        self.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(steps: &[(u64, Step)]) -> Digest {
        let mut digester = Digester::new(steps.last().map_or(0, |(time, _)| *time));
        for (time, step) in steps {
            digester.step(*time, step);
        }
        digester.finish(|label| format!("label {label}"))
    }

    #[test]
    fn a_digest_is_as_long_as_its_limits_and_no_longer() {
        let mut sequence = Sequence::default();
        (1..=CHECKPOINTS as u64).for_each(|request| sequence.add(request, request));
        assert_eq!((sequence.stride, sequence.hashes.len()), (1, CHECKPOINTS));
        let rungs = |count: u64| (0..count).map(|rung| (format!("rung {rung}"), 1)).collect();
        let mut digest = Digest { sequence, rungs: rungs(64), ..run(&[]) };
        assert_eq!(digest.check(), Ok(()));
        digest.rungs = rungs(65);
        assert!(digest.check().is_err());
        digest.rungs = rungs(0);
        digest.sequence.hashes.push(1);
        assert!(digest.check().is_err());
        let next = CHECKPOINTS as u64 + 1;
        digest.sequence.hashes.pop();
        digest.sequence.add(next, next);
        assert_eq!((digest.sequence.stride, digest.sequence.hashes.len()), (2, CHECKPOINTS / 2));
    }

    #[test]
    fn the_label_at_the_peak_is_not_the_one_at_the_end() {
        let allocate = |size, label| Step::Allocate { size, label };
        let digest = run(&[
            (0, allocate(10, 1)),
            (1, allocate(50, 2)),
            (2, allocate(20, 1)),
            (3, Step::Free { size: 50, label: 2 }),
            (4, allocate(25, 1)),
        ]);
        assert_eq!((digest.peak_live_bytes, digest.live_bytes), (80, 55));
        let largest = digest.largest_label.expect("labels were given");
        assert_eq!((&*largest.label, largest.bytes), ("label 2", 50));
    }

    #[test]
    fn of_peaks_that_are_as_high_the_first_counts() {
        let digest = run(&[
            (0, Step::Allocate { size: 50, label: 1 }),
            (1, Step::Free { size: 50, label: 1 }),
            (2, Step::Allocate { size: 50, label: 2 }),
        ]);
        assert_eq!(digest.peak_live_bytes, 50);
        assert_eq!(digest.largest_label.expect("labels were given").label, "label 1");
        let digest = run(&[
            (0, Step::Allocate { size: 50, label: 1 }),
            (1, Step::Free { size: 50, label: 1 }),
            (2, Step::Allocate { size: 60, label: 0 }),
        ]);
        assert_eq!(digest.largest_label, None, "nothing is in it at the peak");
    }

    #[test]
    fn what_was_freed_before_the_peak_is_not_in_its_label() {
        let digest = run(&[
            (0, Step::Allocate { size: 50, label: 1 }),
            (1, Step::Free { size: 50, label: 1 }),
            (2, Step::Allocate { size: 60, label: 2 }),
            (3, Step::Allocate { size: 20, label: 1 }),
        ]);
        let largest = digest.largest_label.expect("labels were given");
        assert_eq!((&*largest.label, largest.bytes), ("label 2", 60));
    }

    #[test]
    fn bands_keep_the_most_of_each_part_and_what_nobody_changed() {
        let digest = run(&[
            (0, Step::Take { bytes: 100 }),
            (0, Step::Allocate { size: 7, label: 0 }),
            (640, Step::Allocate { size: 1, label: 0 }),
            (1279, Step::Return { bytes: 100 }),
        ]);
        assert_eq!(digest.live_band[..64], [7; 64]);
        assert_eq!(digest.live_band[64..], [8; 64]);
        assert_eq!(digest.reserved_band, [100; 128]);
        assert_eq!((digest.reserved_bytes, digest.peak_reserved_bytes), (Some(0), Some(100)));
    }

    #[test]
    fn a_million_requests_keep_at_most_128_hashes_that_shorter_runs_share() {
        let of = |count: u64| {
            let mut sequence = Sequence::default();
            (1..=count).for_each(|request| sequence.add(request, request));
            sequence
        };
        let (short, long) = (of(100), of(1_000_000));
        assert!(long.hashes.len() <= CHECKPOINTS && long.stride > 4096, "{}", long.stride);
        assert_eq!(short.at(64), Some(short.hashes[63]));
        let middle = of(long.stride * 3);
        assert_eq!(middle.at(long.stride), long.at(long.stride));
        assert!(middle.at(long.stride).is_some());
    }

    #[test]
    fn the_longest_digest_fits_the_store() {
        let mut digester = Digester::new(u64::MAX);
        for time in 0..100_000_u64 {
            digester.step(time << 40, &Step::Take { bytes: 1 << 40 });
            digester.step(time << 40, &Step::Allocate { size: 1 << 45, label: 1 });
            digester.step(time << 40, &Step::Fail { size: u64::MAX });
        }
        let mut digest = digester.finish(|_| "\u{1}".repeat(TEXT));
        digest.origin = "\u{1}".repeat(TEXT);
        let text = serde_json::to_vec(&digest).expect("a digest is plain data");
        assert!(text.len() <= Digest::MAX_BYTES, "{}", text.len());
        digest.check().expect("what is written can be read");
    }
}
