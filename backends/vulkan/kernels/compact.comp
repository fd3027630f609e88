// Many moves in one dispatch: each group copies one stretch of what its task names. Neighbouring groups copy neighbouring
// stretches, so that what is under way lies together however long the tasks are.
// Tasks never overlap, so groups need no order. Compiled once, without tools at build time:
//   glslangValidator -V --target-env vulkan1.1 -o compact.spv compact.comp
#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require

layout(local_size_x_id = 0) in;

layout(buffer_reference, std430, buffer_reference_align = 16) buffer Quads { uvec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Words { uint at[]; };

// Addresses are low word first. `count` is in quads where `unit` is 16, in words where it is 4.
struct Task {
    uvec2 from;
    uvec2 to;
    uint count;
    uint unit;
};
layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer Tasks { Task at[]; };

layout(push_constant) uniform Push {
    uvec2 tasks;
    uint count;
    // Groups that share a task, and bytes of the stretch that each of them copies.
    uint sharing;
    uint stretch;
} push;

void main() {
    const uint width = gl_WorkGroupSize.x;
    const uint group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (group / push.sharing >= push.count) return;
    const Task task = Tasks(push.tasks).at[group / push.sharing];
    const uint each = push.stretch / task.unit;
    const uint first = group % push.sharing * each;
    const uint end = min(task.count, first + each);
    uint i = first + gl_LocalInvocationID.x;
    if (task.unit == 16u) {
        Quads from = Quads(task.from);
        Quads to = Quads(task.to);
        // Four loads under way at once hide the memory's latency.
        for (; i + 3u * width < end; i += 4u * width) {
            const uvec4 a = from.at[i];
            const uvec4 b = from.at[i + width];
            const uvec4 c = from.at[i + 2u * width];
            const uvec4 d = from.at[i + 3u * width];
            to.at[i] = a;
            to.at[i + width] = b;
            to.at[i + 2u * width] = c;
            to.at[i + 3u * width] = d;
        }
        for (; i < end; i += width) to.at[i] = from.at[i];
    } else {
        Words from = Words(task.from);
        Words to = Words(task.to);
        for (; i < end; i += width) to.at[i] = from.at[i];
    }
}
