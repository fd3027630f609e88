// c = a * b for row-major matrices: a is rows x inner, b is inner x columns. Tiles of 16 x 16 go through shared memory;
// a row of a tile takes `pitch` words, so that a pitch of 17 keeps columns out of each other's bank.

struct Parameters {
    rows: u32,
    inner: u32,
    columns: u32,
    pitch: u32,
    second: u32,
}
var<immediate> parameters: Parameters;

override shared_words: u32 = 512u;

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
var<workgroup> tiles: array<f32, shared_words>;

@compute @workgroup_size(16, 16)
fn matmul(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) local: vec3<u32>) {
    let mine = local.y * parameters.pitch + local.x;
    var sum = 0.0;
    for (var start = 0u; start < parameters.inner; start += 16u) {
        var left = 0.0;
        if (id.y < parameters.rows && start + local.x < parameters.inner) {
            left = a[id.y * parameters.inner + start + local.x];
        }
        var right = 0.0;
        if (id.x < parameters.columns && start + local.y < parameters.inner) {
            right = b[(start + local.y) * parameters.columns + id.x];
        }
        tiles[mine] = left;
        tiles[parameters.second + mine] = right;
        workgroupBarrier();
        for (var k = 0u; k < 16u; k++) {
            sum += tiles[local.y * parameters.pitch + k] * tiles[parameters.second + k * parameters.pitch + local.x];
        }
        workgroupBarrier();
    }
    if (id.y < parameters.rows && id.x < parameters.columns) {
        c[id.y * parameters.columns + id.x] = sum;
    }
}
