//! Writes a plan as a C header, for firmware that has no allocator.

use crate::classes::lcm;
use crate::plan::Plan;
use crate::{Buffer, Problem};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use core::fmt::Write as _;

/// Writes the offset and the size of every buffer, and the size and the alignment of every arena, as C macros.
///
/// Macros begin with `name`, and go on with a buffer's name, or with its number where `names` is empty. What C does not allow in a
/// name becomes `_`; where two names become the same, the buffer's number follows the second one.
///
/// ```
/// use omniheap_plan::{Buffer, Options, Problem, Region, header, solve};
///
/// let mut problem = Problem::new(Region::unbounded());
/// problem.buffers.push(Buffer::new(64, 0, 2).align(16));
/// let plan = solve(&problem, &Options::default())?;
/// let text = header::write(&problem, &plan, &["input".into()], "net");
/// assert!(text.contains("#define NET_INPUT_OFFSET UINT64_C(0)"));
/// assert!(text.contains("#define NET_ARENA_SIZE UINT64_C(64)"));
/// # Ok::<(), omniheap_plan::ProblemError>(())
/// ```
#[must_use]
pub fn write(problem: &Problem, plan: &Plan, names: &[String], name: &str) -> String {
    let first = if name.starts_with(|c: char| c.is_ascii_digit()) { "_" } else { "" };
    let prefix = format!("{first}{}", identifier(name));
    let mut out = format!(
        "/* Offsets of {} buffers, made by omniheap. Align an arena as its macro says. */\n\
         #ifndef {prefix}_PLAN_H\n#define {prefix}_PLAN_H\n\n#include <stdint.h>\n",
        plan.spots.len()
    );
    // Writing to a string cannot fail, here and below, so there is no error to lose.
    let mut define = |what: &str, value: u64| {
        let _ = writeln!(out, "#define {prefix}_{what} UINT64_C({value})");
    };
    let several = plan.usage.len() > 1;
    for (region, usage) in plan.usage.iter().enumerate() {
        let here =
            problem.buffers.iter().zip(&plan.spots).filter(|(_, spot)| spot.region == region);
        // Checked problems have a common multiple of all alignments.
        let common =
            |align: u64, (buffer, _): (&Buffer, _)| lcm(align, buffer.align).unwrap_or(align);
        let align = here.fold(problem.regions[region].align, common);
        let arena = if several { format!("ARENA_{region}") } else { "ARENA".into() };
        define(&format!("{arena}_SIZE"), usage.peak);
        define(&format!("{arena}_ALIGNMENT"), align);
    }
    let mut taken = BTreeSet::new();
    for (number, (buffer, spot)) in problem.buffers.iter().zip(&plan.spots).enumerate() {
        let mut short =
            names.get(number).map_or_else(|| format!("{number}"), |name| identifier(name));
        if !taken.insert(short.clone()) {
            short = format!("{short}_{number}");
            taken.insert(short.clone());
        }
        define(&format!("{short}_OFFSET"), spot.offset);
        define(&format!("{short}_SIZE"), buffer.size);
        if several {
            define(&format!("{short}_ARENA"), spot.region as u64);
        }
    }
    out.push_str("\n#endif\n");
    out
}

/// Returns the name as a part of a C macro.
fn identifier(name: &str) -> String {
    let part = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Region, RegionSet, solve};

    #[test]
    fn every_buffer_has_a_name_of_its_own() {
        let mut problem = Problem::new(Region::unbounded());
        problem.buffers.extend([0, 1, 2].map(|at| Buffer::new(10 + at, 0, 2).align(1 + at)));
        let plan = solve(&problem, &Options::default()).expect("three buffers");
        let text = write(&problem, &plan, &["a-b".into(), "a.b".into(), "7".into()], "2 nets");
        for (name, at) in [("A_B", 0), ("A_B_1", 1), ("7", 2)] {
            let (offset, size) = (plan.spots[at].offset, problem.buffers[at].size);
            assert!(text.contains(&format!("#define _2_NETS_{name}_OFFSET UINT64_C({offset})\n")));
            assert!(text.contains(&format!("#define _2_NETS_{name}_SIZE UINT64_C({size})\n")));
        }
        assert!(text.contains(&format!("_2_NETS_ARENA_SIZE UINT64_C({})\n", plan.peak())));
        assert!(text.contains("_2_NETS_ARENA_ALIGNMENT UINT64_C(6)\n"));
        assert_eq!(text.matches("#define").count(), 1 + 2 + 6, "a guard, an arena, three buffers");
    }

    #[test]
    fn several_regions_are_several_arenas() {
        let mut problem = Problem::new(Region::unbounded());
        problem.regions.push(Region::unbounded());
        problem.buffers.push(Buffer::new(10, 0, 2).within(RegionSet::only(1)));
        let plan = solve(&problem, &Options::default()).expect("one buffer");
        let text = write(&problem, &plan, &[], "net");
        assert!(text.contains("#define NET_ARENA_0_SIZE UINT64_C(0)\n"));
        assert!(text.contains("#define NET_ARENA_1_SIZE UINT64_C(10)\n"));
        assert!(text.contains("#define NET_0_ARENA UINT64_C(1)\n"));
    }
}
