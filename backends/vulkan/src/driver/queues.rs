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
    let find = |is_wanted: &dyn Fn(F) -> bool| {
        let mut families = (0u32..).zip(families);
        families.find(|(_, family)| family.queue_count > 0 && is_wanted(family.queue_flags))
    };
    let main = [F::GRAPHICS | F::COMPUTE, F::COMPUTE, F::GRAPHICS, F::TRANSFER]
        .into_iter()
        .find_map(|wanted| find(&|flags| flags.contains(wanted)));
    let Some((main, family)) = main else { return Vec::new() };
    let mut chosen = vec![(main, family.queue_count.min(MOST))];
    let mut add = |index: u32| {
        if chosen.iter().all(|(known, _)| *known != index) {
            chosen.push((index, 1));
        }
    };
    if let Some((index, _)) = find(&only_copies) {
        add(index);
    }
    if !family.queue_flags.contains(F::SPARSE_BINDING)
        && let Some((index, _)) = find(&|flags| flags.contains(F::SPARSE_BINDING))
    {
        add(index);
    }
    chosen
}

/// Returns whether a family is transfer-only: no graphics, compute, video or optical flow.
pub(crate) fn only_copies(flags: vk::QueueFlags) -> bool {
    use vk::QueueFlags as F;
    let video = F::VIDEO_DECODE_KHR | F::VIDEO_ENCODE_KHR | F::OPTICAL_FLOW_NV;
    flags.contains(F::TRANSFER) && !flags.intersects(F::GRAPHICS | F::COMPUTE | video)
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
