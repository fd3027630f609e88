//! Rank of a process or a file: from the launcher's environment, or from the file's name.

use serde::Serialize;

/// Rank of a process in its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The rank, from 0.
    pub rank: u32,
    /// Ranks in the job, where the launcher says.
    pub world: Option<u32>,
    /// The launcher whose variables were set.
    pub launcher: &'static str,
}

/// Launchers with the variables of rank and world size. The most specific comes first: `mpirun` inside a Slurm allocation sets both,
/// and Slurm's then number the nodes' daemons. Ray Train sets the names of torchrun.
const LAUNCHERS: [(&str, &str, &str); 5] = [
    ("torchrun", "RANK", "WORLD_SIZE"),
    ("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MPICH", "PMI_RANK", "PMI_SIZE"),
    ("PMIx", "PMIX_RANK", "PMIX_SIZE"),
    ("Slurm", "SLURM_PROCID", "SLURM_NTASKS"),
];

/// Returns the rank that the launcher gave this process; `get` reads an environment variable.
///
/// A variable that is no number, or a rank that is not below its world size, counts as not set.
///
/// # Examples
/// ```
/// use omniheap_trace::ranks::place_from_environment;
/// let slurm = |name: &str| match name {
///     "SLURM_PROCID" => Some("3".to_owned()),
///     "SLURM_NTASKS" => Some("8".to_owned()),
///     _ => None,
/// };
/// let place = place_from_environment(slurm).expect("Slurm says");
/// assert_eq!((place.rank, place.world, place.launcher), (3, Some(8), "Slurm"));
/// ```
pub fn place_from_environment(get: impl Fn(&str) -> Option<String>) -> Option<Place> {
    let number = |name: &str| get(name)?.trim().parse::<u32>().ok();
    LAUNCHERS.iter().find_map(|&(launcher, rank, world)| {
        let place = Place { rank: number(rank)?, world: number(world), launcher };
        place.world.is_none_or(|world| place.rank < world).then_some(place)
    })
}

/// Returns the rank in a file's name: the number after the last `rank`, otherwise the last number before the extensions.
///
/// # Examples
/// ```
/// use omniheap_trace::ranks::rank_from_name;
/// assert_eq!(rank_from_name("job7_Rank-012.pickle.gz"), Some(12));
/// assert_eq!(rank_from_name("trace.3.csv"), Some(3));
/// assert_eq!(rank_from_name("snapshot.pickle"), None);
/// ```
pub fn rank_from_name(name: &str) -> Option<u32> {
    let lower = name.to_ascii_lowercase();
    let after = |at: usize| {
        let rest = &lower[at + "rank".len()..];
        let rest = rest.strip_prefix(['_', '-', '=', '.', ' ']).unwrap_or(rest);
        leading_number(rest)
    };
    let mut places: Vec<usize> = lower.match_indices("rank").map(|(at, _)| at).collect();
    places.reverse();
    places.into_iter().find_map(after).or_else(|| last_number(&lower))
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// The last number of a name, apart from those inside its extension (`.mp4` names no rank 4).
fn last_number(name: &str) -> Option<u32> {
    let mut stem = name;
    while let Some((rest, extension)) = stem.rsplit_once('.') {
        if extension.bytes().all(|byte| byte.is_ascii_digit()) {
            break;
        }
        stem = rest;
    }
    let end = stem.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = stem[..end].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    // The byte before is a whole character: the search returned its start, and only ASCII is one byte long.
    leading_number(stem.get(start..end).unwrap_or(&stem[end - 1..end]))
}

#[cfg(test)]
mod tests {
    use super::{place_from_environment, rank_from_name};

    fn place(variables: &[(&str, &str)]) -> Option<(u32, Option<u32>, &'static str)> {
        let get = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        place_from_environment(get).map(|place| (place.rank, place.world, place.launcher))
    }

    #[test]
    fn every_launcher_is_known_and_the_inner_one_wins() {
        assert_eq!(place(&[("RANK", "5"), ("WORLD_SIZE", "8")]), Some((5, Some(8), "torchrun")));
        assert_eq!(place(&[("OMPI_COMM_WORLD_RANK", "1")]), Some((1, None, "Open MPI")));
        assert_eq!(place(&[("PMI_RANK", "2"), ("PMI_SIZE", "3")]), Some((2, Some(3), "MPICH")));
        let both = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1"), ("PMI_RANK", "6")];
        assert_eq!(place(&both), Some((6, None, "MPICH")));
        assert_eq!(place(&[]), None);
    }

    #[test]
    fn nonsense_counts_as_not_set() {
        assert_eq!(place(&[("RANK", "8"), ("WORLD_SIZE", "8")]), None);
        assert_eq!(place(&[("RANK", "-1")]), None);
        assert_eq!(place(&[("RANK", ""), ("SLURM_PROCID", " 4 ")]), Some((4, None, "Slurm")));
    }

    #[test]
    fn names_of_files_say_the_rank() {
        for (name, rank) in [
            ("rank0_memory_snapshot.pickle", Some(0)),
            ("node3.rank_17.trace", Some(17)),
            ("rank=4", Some(4)),
            ("frank.12.json", Some(12)),
            ("12.csv.gz", Some(12)),
            ("run-2026-rank.7", Some(7)),
            ("snapshot5.mp4", Some(5)),
            ("part3.of.8", Some(8)),
            ("part3.of.tar.gz", Some(3)),
            ("Rank 6.bin", Some(6)),
            ("é9.csv", Some(9)),
            ("é.csv", None),
            ("rank99999999999.csv", None),
            ("", None),
        ] {
            assert_eq!(rank_from_name(name), rank, "{name}");
        }
    }
}
