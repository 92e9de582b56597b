def bernoulli_at_5(m, p, x, key):
    p_2 = lookup(m, p, x)  # rules.dec:5
    law = draw_get(m, x, field='law')
    p_3 = lookup_2(m, law, x)
    div = map_div(m, p_2, p_3)
    coin = bernoulli(m, div, key)
    return (law, coin)


def x_at_4(m, children, i, p, key):
    x = gather(m, children, i)  # rules.dec:4
    value, value_2 = bernoulli_at_5(m, p, x, key)  # rules.dec:5
    return (x, value, value_2)


def p_at_7(m, p, value):
    sub = map_sub(m, p, value)  # rules.dec:7
    relu = map_relu(m, sub)
    p_2 = normalize(m, relu)
    return p_2


def speculative(m, target, drafter, gamma):
    """Speculative decoding (Leviathan, Kalman, Matias, 2023: "Fast Inference from Transformers via Speculative
    Decoding"); speculative sampling (Chen et al., 2023: "Accelerating Large Language Model Decoding with
    Speculative Sampling"): a chain of gamma draws from a small model, verified in one call of the target.
    """
    i = 0
    while not done(m):  # speculative.dec:7
        m.check_progress('stdlib/speculative.dec:7:5', i)
        t = tree_new(m, context(m), until=('limit', 'greedy place', 'ends'))  # speculative.dec:8

        def noise_of(i_2):  # speculative.dec:10
            return noise(m, i, i_2, kind='race', site='speculative.2')

        t = yield from m.roll(drafter, t, 0, gamma, noise_of)  # speculative.dec:9
        p_target = yield m.evaluate(target, t, {})  # speculative.dec:12

        def rejection(depth, p, children):
            acc, has_acc, p_2 = None, False, p  # rules.dec:4
            for i_3 in range(len_of(m, children)):
                key = noise(m, i, depth, i_3, kind='unit', site='speculative/rejection@3.5')  # rules.dec:5
                x, value, value_2 = x_at_4(m, children, i_3, p_2, key)  # rules.dec:4
                if value_2:  # rules.dec:5
                    acc, has_acc = x, True
                if not has_acc:
                    p_2 = p_at_7(m, p_2, value)  # rules.dec:7
                if has_acc:
                    break
            not_has_acc = not has_acc  # rules.dec:4
            if not_has_acc:
                key_2 = noise(m, i, depth, kind='race', site='speculative/rejection@3.6')  # rules.dec:8
                emit = draw(m, p_2, key_2)
            else:
                emit = None
            return has_acc, acc, not_has_acc, emit

        accepted = walk(m, t, p_target, rejection, scope='node')  # speculative.dec:12
        commit(m, accepted)  # speculative.dec:13
        i += 1
