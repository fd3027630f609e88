//! All ranks of a job beside each other.

use super::digest::{BAND, Digest, Failed, LabelBytes};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Names that one list shows; the rest is counted.
const NAMED: usize = 100;

/// A figure and the rank that has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct At {
    /// The rank.
    pub rank: u32,
    /// Its figure.
    pub value: u64,
}

/// A figure over all ranks that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// Name of the figure, such as `peak live`.
    pub name: String,
    /// True if the figure counts bytes.
    pub is_bytes: bool,
    /// Ranks that have the figure.
    pub ranks: u64,
    /// The smallest; the lowest rank of several.
    pub min: At,
    /// The middle one; the lower of two.
    pub median: At,
    /// The largest; the lowest rank of several.
    pub max: At,
    /// The sum.
    pub total: u64,
}

/// A file that gave no rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// The reason, and what to do.
    pub why: String,
}

/// A rank that several files claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Doubled {
    /// The rank.
    pub rank: u32,
    /// The file that counts: the first by name.
    pub kept: String,
    /// A file that does not.
    pub left_out: String,
}

/// Ranks that were recorded with one world size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct World {
    /// The world size.
    pub size: u32,
    /// Ranks that name it.
    pub ranks: u64,
}

/// Point at which the ranks' requests begin to differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parting {
    /// Requests that all ranks made alike.
    pub after: u64,
    /// Requests within which the first difference lies.
    pub before: u64,
    /// Ranks that stay with the largest group.
    pub together: u64,
    /// Ranks that leave it, the first hundred.
    pub apart: Vec<u32>,
    /// Ranks that leave it, in all.
    pub apart_count: u64,
}

/// A failed request, and what the other ranks held at the same time of their runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The rank that failed.
    pub rank: u32,
    /// The request.
    pub request: Failed,
    /// Bytes it missed.
    pub missing: u64,
    /// Bytes live in the others then, where recorded over time.
    pub others_live: Option<Spread>,
    /// Bytes that the others held from the driver and did not use then, where recorded over time.
    pub others_free: Option<Spread>,
}

/// All ranks of a job.
#[derive(Debug, Clone, Default)]
pub struct Job {
    ranks: BTreeMap<u32, Digest>,
    doubled: Vec<Doubled>,
    problems: Vec<Problem>,
    pages: BTreeMap<u32, String>,
}

impl Job {
    /// Puts ranks together. Where several claim a rank, the first by name counts.
    pub fn new(read: impl IntoIterator<Item = Result<Digest, Problem>>) -> Self {
        let mut job = Self::default();
        let mut digests = Vec::new();
        for result in read {
            match result {
                Ok(digest) => digests.push(digest),
                Err(problem) => job.problems.push(problem),
            }
        }
        digests.sort_by(|one, other| one.origin.cmp(&other.origin));
        digests.into_iter().for_each(|digest| job.add(digest));
        job.problems.sort_by(|one, other| one.file.cmp(&other.file));
        job
    }

    fn add(&mut self, digest: Digest) {
        let Some(rank) = digest.rank else {
            let why = "no rank in its name or content; name it as in rank3.trace".to_owned();
            self.problems.push(Problem { file: digest.origin, why });
            return;
        };
        if let Some(first) = self.ranks.get(&rank) {
            let kept = first.origin.clone();
            self.doubled.push(Doubled { rank, kept, left_out: digest.origin });
            return;
        }
        self.ranks.insert(rank, digest);
    }

    /// Returns the ranks in order.
    pub fn ranks(&self) -> impl ExactSizeIterator<Item = (u32, &Digest)> {
        self.ranks.iter().map(|(rank, digest)| (*rank, digest))
    }

    /// Notes where the page of a rank's own lies, as a path from the job's page, which links to it.
    pub fn link(&mut self, rank: u32, page: String) {
        self.pages.insert(rank, page);
    }

    /// Returns the pages of ranks that were [noted](Self::link).
    pub(super) const fn pages(&self) -> &BTreeMap<u32, String> {
        &self.pages
    }

    /// Returns the files that gave no rank.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the files that were left out because another one has the same rank.
    pub fn doubled(&self) -> &[Doubled] {
        &self.doubled
    }

    /// Returns the world sizes that ranks name, the largest last. More than one: the job grew or shrank.
    pub fn worlds(&self) -> Vec<World> {
        let mut sizes: BTreeMap<u32, u64> = BTreeMap::new();
        for world in self.ranks.values().filter_map(|digest| digest.world) {
            *sizes.entry(world).or_default() += 1;
        }
        sizes.into_iter().map(|(size, ranks)| World { size, ranks }).collect()
    }

    /// Returns how many ranks below the world size are missing, and the first hundred of them. Without a world size, ranks below the
    /// largest one are looked for.
    pub fn missing(&self) -> (u64, Vec<u32>) {
        let named = self.worlds().last().map_or(0, |world| world.size);
        let seen = self.ranks.last_key_value().map_or(0, |(rank, _)| rank.saturating_add(1));
        let world = named.max(seen);
        let count = u64::from(world) - self.ranks.len() as u64;
        let absent = (0..world).filter(|rank| !self.ranks.contains_key(rank));
        // A single rank 4,000,000,000 must not cost four billion lookups: only the named ones are looked for.
        (count, absent.take(NAMED).collect())
    }

    /// Returns the figures over all ranks; those that no rank has are left out.
    pub fn spreads(&self) -> Vec<Spread> {
        type Figure = fn(&Digest) -> Option<u64>;
        let figures: [(&str, bool, Figure); 7] = [
            ("peak live", true, |digest| Some(digest.peak_live_bytes)),
            ("live", true, |digest| Some(digest.live_bytes)),
            ("peak reserved", true, |digest| digest.peak_reserved_bytes),
            ("reserved", true, |digest| digest.reserved_bytes),
            ("requests", false, |digest| Some(digest.requests)),
            ("failures", false, |digest| Some(digest.failures)),
            ("duration (µs)", false, |digest| Some(digest.duration_us)),
        ];
        let spread = |(name, is_bytes, figure): (&str, bool, Figure)| {
            let values = self.ranks.iter();
            let values =
                values.filter_map(|(&rank, digest)| Some(At { rank, value: figure(digest)? }));
            Spread::of(name, is_bytes, values.collect())
        };
        let mut all: Vec<Spread> = figures.into_iter().filter_map(spread).collect();
        let rungs = self.ranks.values().flat_map(|digest| digest.rungs.keys());
        let rungs: std::collections::BTreeSet<&String> = rungs.collect();
        all.extend(rungs.into_iter().filter_map(|rung| {
            let count = |digest: &Digest| digest.rungs.get(rung).copied().unwrap_or(0);
            let values = self.ranks.iter();
            let values = values.map(|(&rank, digest)| At { rank, value: count(digest) });
            Spread::of(&format!("rung {rung}"), false, values.collect())
        }));
        all
    }

    /// Returns the rank with the largest peak of live bytes and its largest label; the lowest of several.
    pub fn worst(&self) -> Option<(At, Option<&LabelBytes>)> {
        let peak = |(&rank, digest): (&u32, &Digest)| At { rank, value: digest.peak_live_bytes };
        let worst = self
            .ranks
            .iter()
            .map(peak)
            .reduce(|worst, at| if at.value > worst.value { at } else { worst })?;
        Some((worst, self.ranks.get(&worst.rank)?.largest_label.as_ref()))
    }

    /// Returns where the requests of the ranks begin to differ; `None` when they never do, or fewer than two were recorded over time.
    pub fn parting(&self) -> Option<Parting> {
        let compared: Vec<(u32, &Digest)> =
            self.ranks().filter(|(_, digest)| !digest.live_band.is_empty()).collect();
        let stride = compared.iter().map(|(_, digest)| digest.sequence.stride).max()?;
        let most = compared.iter().map(|(_, digest)| digest.requests).max()?;
        let mut after = 0;
        loop {
            let before = (after + stride).min(most);
            // A rank that ended has no hash there, or ends there with its own; both differ from one that goes on.
            let hash = |digest: &Digest| match digest.requests == before {
                true => Some(digest.sequence.end),
                false => digest.sequence.at(before).filter(|_| digest.requests > before),
            };
            let hashes = compared.iter().map(|(rank, digest)| (*rank, hash(digest)));
            if let Some(apart) = apart(&hashes.collect::<Vec<_>>()) {
                let together = compared.len() as u64 - apart.len() as u64;
                let apart_count = apart.len() as u64;
                let named = apart.into_iter().take(NAMED).collect();
                return Some(Parting { after, before, together, apart: named, apart_count });
            }
            if before == most {
                return None;
            }
            after = before;
        }
    }

    /// Returns the failed requests, rank by rank, and how many there are in all; at most a hundred are described.
    pub fn failures(&self) -> (u64, Vec<Failure>) {
        let count = self.ranks.values().fold(0_u64, |sum, it| sum.saturating_add(it.failures));
        let failed = self
            .ranks()
            .flat_map(|(rank, digest)| digest.failed.iter().map(move |failed| (rank, failed)));
        let described = failed.take(NAMED).map(|(rank, failed)| self.failure(rank, failed));
        (count, described.collect())
    }

    fn failure(&self, rank: u32, request: &Failed) -> Failure {
        let others = |name: &str, figure: fn(&Digest, usize) -> Option<u64>| {
            let others = self.ranks().filter(|(other, _)| *other != rank);
            let values = others.filter_map(|(rank, digest)| {
                let part = part_at(digest, request.time_us);
                Some(At { rank, value: figure(digest, part)? })
            });
            Spread::of(name, true, values.collect())
        };
        let live = |digest: &Digest, part: usize| digest.live_band.get(part).copied();
        let free = |digest: &Digest, part: usize| {
            let (held, live) = (digest.reserved_band.get(part)?, digest.live_band.get(part)?);
            Some(held.saturating_sub(*live))
        };
        Failure {
            rank,
            missing: request.missing(),
            request: request.clone(),
            others_live: others("live", live),
            others_free: others("free", free),
        }
    }
}

/// Returns the part of a rank's run at a time; the last one where the rank had ended.
fn part_at(digest: &Digest, time_us: u64) -> usize {
    let part = u128::from(time_us) * BAND as u128 / (u128::from(digest.duration_us) + 1);
    usize::try_from(part).unwrap_or(BAND).min(BAND - 1)
}

/// Returns the ranks outside the largest group of equal hashes; `None` when there is one group. The group of the lowest rank wins a tie.
fn apart(hashes: &[(u32, Option<u64>)]) -> Option<Vec<u32>> {
    let mut groups: HashMap<Option<u64>, (u64, u32)> = HashMap::new();
    for (rank, hash) in hashes {
        groups.entry(*hash).or_insert((0, *rank)).0 += 1;
    }
    if groups.len() < 2 {
        return None;
    }
    let order = |(count, lowest): (u64, u32)| (count, core::cmp::Reverse(lowest));
    let (largest, _) = groups.iter().max_by_key(|(_, group)| order(**group))?;
    Some(hashes.iter().filter(|(_, hash)| hash != largest).map(|(rank, _)| *rank).collect())
}

impl Spread {
    fn of(name: &str, is_bytes: bool, mut values: Vec<At>) -> Option<Self> {
        let total = values.iter().fold(0_u64, |sum, at| sum.saturating_add(at.value));
        values.sort_unstable_by_key(|at| (at.value, at.rank));
        let (min, median) = (*values.first()?, values[(values.len() - 1) / 2]);
        let largest = values.last()?.value;
        let max = *values.iter().find(|at| at.value == largest)?;
        let ranks = values.len() as u64;
        Some(Self { name: name.to_owned(), is_bytes, ranks, min, median, max, total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32, sizes: &[u64]) -> Result<Digest, Problem> {
        let mut text = String::from("op,id,size,stream,time_us\n");
        for (id, size) in sizes.iter().enumerate() {
            text += &format!("a,{id},{size},0,{id}\n");
        }
        Ok(Digest::read(text.as_bytes(), &format!("rank{rank}.csv")).expect("a trace"))
    }

    #[test]
    fn totals_are_sums_and_the_middle_is_the_lower_one() {
        let ranks = [rank(0, &[5]), rank(3, &[1]), rank(1, &[9, 2]), rank(2, &[11])];
        let job = Job::new(ranks.clone());
        let peak = &job.spreads()[0];
        assert_eq!((peak.min.rank, peak.median.rank, peak.max.rank), (3, 0, 1));
        assert_eq!((peak.total, peak.ranks, peak.max.value), (28, 4, 11));
        let five = Job::new(ranks.into_iter().chain([rank(4, &[6])]));
        assert_eq!(five.spreads()[0].median.rank, 4, "two are below it and two above");
        assert_eq!(job.worst().map(|(at, _)| at.rank), Some(1), "the lower of ranks 1 and 2");
    }

    #[test]
    fn the_minority_parts_and_the_range_holds_the_first_difference() {
        let same: Vec<u64> = (1..=1000).collect();
        let mut other = same.clone();
        other[700] = 7;
        let job = Job::new([rank(0, &same), rank(1, &other), rank(2, &same)]);
        let parting = job.parting().expect("rank 1 differs");
        assert_eq!((parting.apart, parting.together), (vec![1], 2));
        assert!(
            parting.after <= 700 && 700 < parting.before,
            "{} {}",
            parting.after,
            parting.before
        );
        assert_eq!(Job::new([rank(0, &same), rank(1, &same)]).parting(), None);
        assert_eq!(Job::new([]).parting(), None);
    }

    #[test]
    fn a_rank_that_ends_early_parts() {
        let job = Job::new([rank(0, &[1, 2, 3]), rank(1, &[1, 2]), rank(2, &[1, 2, 3])]);
        let parting = job.parting().expect("rank 1 ends");
        assert_eq!((parting.after, parting.before, parting.apart), (2, 3, vec![1]));
    }

    #[test]
    fn a_page_names_some_problems_and_counts_all() {
        let problem =
            |at: usize| Problem { file: format!("<broken {at}>"), why: "it is cut".into() };
        for count in [1, NAMED + 1] {
            let job = Job::new((0..count).map(|at| Err(problem(at))).chain([rank(0, &[1])]));
            let mut page = Vec::new();
            super::super::write_html(&job, "a job", &mut page).expect("memory takes it");
            let page = String::from_utf8(page).expect("UTF-8");
            assert!(page.contains(&format!("\"problem_count\":{count},")), "{count}");
            assert_eq!(page.matches("it is cut").count(), count.min(NAMED));
        }
    }

    #[test]
    fn missing_and_doubled_ranks_are_named() {
        let mut named = rank(1, &[1]).expect("a digest");
        named.world = Some(5);
        let mut twin = rank(1, &[2]).expect("a digest");
        twin.origin = "rank1.twin.csv".into();
        let job = Job::new([rank(3, &[1]), Ok(named), Ok(twin)]);
        assert_eq!(job.missing(), (3, vec![0, 2, 4]));
        assert_eq!(job.doubled().len(), 1);
        assert_eq!(job.doubled()[0].kept, "rank1.csv", "the first by name");
        assert_eq!(Job::new([rank(4_000_000_000, &[1])]).missing().0, 4_000_000_000);
    }
}
