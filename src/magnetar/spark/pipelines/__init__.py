"""Common pipelines around a messaging system, ready to run on Spark.

``magnetar pipeline NAME --config FILE`` runs one, by :func:`magnetar.spark.pipelines.run.run_pipeline`.
"""
