//! Choice of the queues to open. Pure.
#![forbid(unsafe_code)]
use ash::vk;

/// Timelines beyond this many queues share them: one for the main timeline, one for all others.
///
/// On an H200 each queue makes opening a device 0.1 s longer, and a wait of one queue for another takes 0.2 ms; timelines
/// on one queue are ordered for nothing.
const MOST: u32 = 2;

/// Chooses families and how many queues of each, the main family first.
///
/// The main family does graphics and compute where one does both. A family that only copies adds one queue, and so does
/// one that binds sparse memory when the main one cannot.
pub(crate) fn choose(families: &[vk::QueueFamilyProperties]) -> Vec<(u32, u32)> {
    use vk::QueueFlags as F;
    let find = |wanted: F, unwanted: F| {
        (0u32..).zip(families).find(|(_, family)| {
            let flags = family.queue_flags;
            family.queue_count > 0 && flags.contains(wanted) && !flags.intersects(unwanted)
        })
    };
    let main = find(F::GRAPHICS | F::COMPUTE, F::empty())
        .or_else(|| find(F::COMPUTE, F::empty()))
        .or_else(|| find(F::GRAPHICS, F::empty()))
        .or_else(|| find(F::TRANSFER, F::empty()));
    let Some((main, family)) = main else { return Vec::new() };
    let mut chosen = vec![(main, family.queue_count.min(MOST))];
    let mut add = |index: u32| {
        if chosen.iter().all(|(known, _)| *known != index) {
            chosen.push((index, 1));
        }
    };
    let engines = F::VIDEO_DECODE_KHR | F::VIDEO_ENCODE_KHR | F::OPTICAL_FLOW_NV;
    if let Some((index, _)) = find(F::TRANSFER, F::GRAPHICS | F::COMPUTE | engines) {
        add(index);
    }
    if !family.queue_flags.contains(F::SPARSE_BINDING)
        && let Some((index, _)) = find(F::SPARSE_BINDING, F::empty())
    {
        add(index);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use vk::QueueFlags as F;

    fn family(flags: F, count: u32) -> vk::QueueFamilyProperties {
        vk::QueueFamilyProperties { queue_flags: flags, queue_count: count, ..Default::default() }
    }

    const ALL: F = F::from_raw(
        F::GRAPHICS.as_raw()
            | F::COMPUTE.as_raw()
            | F::TRANSFER.as_raw()
            | F::SPARSE_BINDING.as_raw(),
    );

    #[test]
    fn a_discrete_device_gives_two_queues_and_a_copy_queue() {
        let copy = F::TRANSFER | F::SPARSE_BINDING;
        let compute = F::COMPUTE | F::TRANSFER | F::SPARSE_BINDING;
        let video = F::TRANSFER | F::VIDEO_DECODE_KHR;
        let families = [family(ALL, 16), family(video, 1), family(copy, 2), family(compute, 8)];
        assert_eq!(choose(&families), [(0, 2), (2, 1)]);
    }

    #[test]
    fn one_queue_is_enough() {
        assert_eq!(choose(&[family(F::GRAPHICS | F::COMPUTE | F::TRANSFER, 1)]), [(0, 1)]);
    }

    #[test]
    fn sparse_binding_may_need_a_family_of_its_own() {
        let families = [family(F::GRAPHICS | F::COMPUTE, 1), family(F::SPARSE_BINDING, 1)];
        assert_eq!(choose(&families), [(0, 1), (1, 1)]);
    }

    #[test]
    fn a_compute_only_device_is_served_and_an_empty_one_is_not() {
        assert_eq!(choose(&[family(F::TRANSFER, 0), family(F::COMPUTE, 2)]), [(1, 2)]);
        assert_eq!(choose(&[]), []);
    }
}
